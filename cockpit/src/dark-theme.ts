// SPDX-License-Identifier: GPL-2.0-or-later
// Light or dark: what the user chose in Cockpit's shell (local storage, and an event), else what the browser prefers.

const preference = window.matchMedia("(prefers-color-scheme: dark)");

function apply(chosen?: string) {
    const style = chosen ?? localStorage.getItem("shell:style") ?? "auto";
    const dark = style === "dark" || (style === "auto" && preference.matches);
    document.documentElement.classList.toggle("pf-v6-theme-dark", dark);
}

window.addEventListener("storage", event => event.key === "shell:style" && apply());
window.addEventListener("cockpit-style", event => apply((event as CustomEvent<{ style: string }>).detail.style));
preference.addEventListener("change", () => apply());
apply();
