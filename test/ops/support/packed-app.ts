import { execFileSync } from "node:child_process";
import {
  chmodSync,
  cpSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";

const checkout = fileURLToPath(new URL("../../..", import.meta.url));
const sources = [
  "package.json",
  "README.md",
  "LICENSE",
  "CHANGELOG.md",
  "src",
  "ui",
  "scripts",
  "tsconfig.json",
  "tsconfig.build.json",
];

/** What an image has in /app: the package as it would be published, its peers, and an application that uses it. */
export function packedApp(program: string): { folder: string; app: string } {
  const folder = mkdtempSync(join(tmpdir(), "sagabox-image-"));
  chmodSync(folder, 0o755);
  const app = join(folder, "app");
  const home = join(app, "node_modules/sagabox");
  mkdirSync(home, { recursive: true });
  execFileSync("tar", ["-xzf", pack(folder), "--strip-components=1", "-C", home]);
  copyWithDependencies("pg", join(app, "node_modules"));
  copyWithDependencies("@standard-schema/spec", join(app, "node_modules"));
  writeFileSync(join(app, "package.json"), JSON.stringify({ type: "module" }));
  writeFileSync(join(app, "app.js"), program);
  return { folder, app };
}

/** Packs the package of the checkout `root` as it would be published, and returns the path of the tarball in `folder`. */
// Built in a copy, as the checkout's own dist may be in use; below it, so that the compiler finds the packages by plain paths.
export function pack(folder: string, root = checkout): string {
  mkdirSync(join(root, ".sagabox"), { recursive: true });
  const copy = mkdtempSync(join(root, ".sagabox/package-"));
  try {
    for (const name of sources) cpSync(join(root, name), join(copy, name), { recursive: true });
    mkdirSync(join(copy, "node_modules"));
    mkdirSync(join(copy, "node_modules/@preact"));
    for (const name of ["typescript", "rolldown", "vite", "preact", "@preact/signals", "uplot"])
      symlinkSync(join(root, "node_modules", name), join(copy, "node_modules", name));
    execFileSync(process.execPath, ["scripts/build.mjs"], { cwd: copy, stdio: "pipe" });
    const text = execFileSync("npm", ["pack", "--ignore-scripts", "--json", "--pack-destination", folder], {
      cwd: copy,
      encoding: "utf8",
      stdio: ["ignore", "pipe", "pipe"],
    });
    const [{ filename }] = JSON.parse(text.slice(text.indexOf("[\n"))) as [{ filename: string }];
    return join(folder, filename);
  } finally {
    rmSync(copy, { recursive: true, force: true });
  }
}

function copyWithDependencies(name: string, to: string): void {
  if (existsSync(join(to, name))) return;
  const from = join(checkout, "node_modules", name);
  if (!existsSync(from)) return; // an optional one that is not installed here
  cpSync(from, join(to, name), { recursive: true });
  const { dependencies = {} } = JSON.parse(readFileSync(join(from, "package.json"), "utf8")) as {
    dependencies?: Record<string, string>;
  };
  for (const dependency of Object.keys(dependencies)) copyWithDependencies(dependency, to);
}
