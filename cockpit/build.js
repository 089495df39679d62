#!/usr/bin/env node
// SPDX-License-Identifier: GPL-2.0-or-later
// Builds the page into build/cockpit/dist, and with --tests the unit tests into build/cockpit/tests.

import fs from "node:fs";
import path from "node:path";
import { fileURLToPath } from "node:url";
import esbuild from "esbuild";

const here = path.dirname(fileURLToPath(import.meta.url));
const output = process.env.OUTPUT ?? path.join(here, "../build/cockpit");

// Of PatternFly's base, the fonts that a page shows and no pictures: all that is used is in the package.
const base = {
    name: "patternfly-base",
    setup(build) {
        build.onLoad({ filter: /patternfly-base\.css$/ }, async ({ path: file }) => {
            const text = await fs.promises.readFile(file, "utf8");
            const contents = text
                .replace(/@font-face\s*{[^}]*}/g, face => /RedHat(Text|Display|Mono)VF\.woff2/.test(face) ? face : "")
                .replace(/url\("[^"]*\.svg"\)/g, "none");
            return { contents, loader: "css" };
        });
    },
};

const common = { bundle: true, target: ["es2020"], logLevel: "warning", absWorkingDir: here };

if (process.argv.includes("--tests")) {
    const entryPoints = fs.readdirSync(path.join(here, "test")).map(file => path.join("test", file));
    await esbuild.build({ ...common, entryPoints, outdir: path.join(output, "tests"), platform: "node", format: "esm",
                          outExtension: { ".js": ".mjs" } });
} else {
    const dist = path.join(output, "dist");
    await fs.promises.rm(dist, { recursive: true, force: true });
    await esbuild.build({ ...common, entryPoints: ["src/index.tsx"], outdir: dist, minify: true, legalComments: "linked",
                          define: { "process.env.NODE_ENV": '"production"' }, loader: { ".woff2": "file" },
                          assetNames: "fonts/[name]", plugins: [base] });
    for (const file of ["index.html", "manifest.json"])
        await fs.promises.copyFile(path.join(here, "src", file), path.join(dist, file));
}
