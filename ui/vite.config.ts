import { fileURLToPath } from "node:url";
import { defineConfig } from "vite";

// Relative addresses work at any sub-path. Names with a hash survive rolling deploys, because an old page still finds its
// files. Nothing is inlined: the content security policy allows files of the own origin only.
export default defineConfig({
  root: fileURLToPath(new URL(".", import.meta.url)),
  base: "./",
  oxc: { jsx: { runtime: "automatic", importSource: "preact" } },
  build: {
    outDir: fileURLToPath(new URL("../dist/dashboard/ui", import.meta.url)),
    emptyOutDir: true,
    target: "es2022",
    assetsInlineLimit: 0,
    modulePreload: { polyfill: false },
    reportCompressedSize: true,
  },
});
