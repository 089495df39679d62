// SPDX-License-Identifier: GPL-2.0-or-later
import "./dark-theme";

import { createRoot } from "react-dom/client";

import "@patternfly/patternfly/patternfly-base.css";
import { App } from "./app";
import "./app.css";

document.addEventListener("DOMContentLoaded", () => {
    const place = document.getElementById("app");
    if (place)
        createRoot(place).render(<App />);
});
