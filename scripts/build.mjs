// Builds the package: src → dist. Every entry of package.json becomes one bundled file; code that entries share goes into
// dist/chunks. One file per source made `import "sagabox"` slow: Node reads and links several hundred modules one by one.
// White space and comments are removed and local variables get short names. Functions and classes keep theirs, so stack
// traces stay readable, and source maps lead back to src, which the package ships.
// Declarations stay one file per source, in dist/types.
import { spawnSync } from "node:child_process";
import { chmodSync, readFileSync, rmSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { rolldown } from "rolldown";

const root = dirname(dirname(fileURLToPath(import.meta.url)));
const { exports, bin } = JSON.parse(readFileSync(join(root, "package.json"), "utf8"));

rmSync(join(root, "dist"), { recursive: true, force: true });
const compiler = join(root, "node_modules/typescript/bin/tsc");
const { status } = spawnSync(process.execPath, [compiler, "-p", "tsconfig.build.json"], {
  cwd: root,
  stdio: "inherit",
});
if (status !== 0) process.exit(status ?? 1);

const isPackageName = (id) => !id.startsWith(".") && !id.startsWith("/");
const bundle = await rolldown({
  cwd: root,
  input: entries(),
  platform: "node",
  external: isPackageName,
  preserveEntrySignatures: "allow-extension",
});
await bundle.write({
  dir: "dist",
  format: "esm",
  // The name of a shared chunk would list all entries that need it.
  chunkFileNames: ({ name }) => `chunks/${name.startsWith("shared") ? "shared" : "[name]"}-[hash].js`,
  // Code that imports an optional peer gets a chunk of its own. Otherwise bundlers of applications without that peer would
  // meet its name in a chunk that they need, and fail. Shared chunks below 20 kB are merged into their closest neighbour:
  // finding and linking a file costs Node more than reading some code that an entry does not need.
  codeSplitting: {
    includeDependenciesRecursively: false,
    groups: [
      { name: "s3", test: /src\/claim-check\/s3\//, priority: 1 },
      {
        name: "shared",
        test: /src\/(?!cli\/|embedded\/)/,
        minShareCount: 2,
        entriesAware: true,
        entriesAwareMergeThreshold: 20_000,
      },
    ],
  },
  minify: {
    mangle: { toplevel: false, keepNames: true },
    compress: true,
    codegen: { removeWhitespace: true },
  },
  sourcemap: true,
  sourcemapExcludeSources: true,
});
await bundle.close();
buildPages();
chmodSync(join(root, bin.sagabox), 0o755);

/** The pages of the dashboard, from ui/ into dist/dashboard/ui. */
function buildPages() {
  const vite = join(root, "node_modules/vite/bin/vite.js");
  const { status: built } = spawnSync(process.execPath, [vite, "build", "ui", "--logLevel", "warn"], {
    cwd: root,
    stdio: "inherit",
  });
  if (built !== 0) process.exit(built ?? 1);
}

/** The entries of package.json, as a map from the name of the built file to its source. */
function entries() {
  const inputs = { [fileName(bin.sagabox)]: "src/cli/main.ts" };
  for (const entry of Object.values(exports)) {
    if (typeof entry === "object") inputs[fileName(entry.default)] = entry["sagabox:source"];
  }
  return inputs;
}

function fileName(path) {
  return path.replace(/^(\.\/)?dist\//, "").replace(/\.js$/, "");
}
