import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { pathToFileURL } from "node:url";
import { expect, onTestFinished, test, vi } from "vitest";
import { runCli } from "../../test/support/run-cli.ts";
import { environmentOfBus } from "../options/index.ts";
import { inspectApp, loadApp } from "./load-app.ts";

function folderWith(files: Readonly<Record<string, string>>): string {
  const folder = mkdtempSync(join(tmpdir(), "sagabox-app-"));
  onTestFinished(() => rmSync(folder, { recursive: true, force: true }));
  for (const [name, text] of Object.entries(files)) writeFileSync(join(folder, name), text);
  return folder;
}

test.each(["app.mjs", "app.cjs"])(
  "an error of the syntax in %s is told with its file and line",
  async (name) => {
    const file = join(folderWith({ [name]: "const fine = 1;\nconst broken = ;\n" }), name);
    const { code, stderr } = await runCli(["worker", "--app", file]);
    expect(code).toBe(1);
    expect(stderr).toContain(`The import failed: Unexpected token ';' at ${file}:2`);
  },
);

test("an import of what is not exported is told with its file and line", async () => {
  const file = join(folderWith({ "app.mjs": 'import { nothing } from "node:fs";\n' }), "app.mjs");
  const { stderr } = await runCli(["worker", "--app", file]);
  expect(stderr).toContain(`does not provide an export named 'nothing' at ${file}:1`);
});

test("G11: a bus reads general names such as BATCH_SIZE only where the command loads the application", async () => {
  const options = pathToFileURL(join(import.meta.dirname, "../options/index.ts")).href;
  const app = `
    import { environmentOfBus } from "${options}";
    const read = environmentOfBus({ BATCH_SIZE: "5", SAGABOX_CONCURRENCY: "3" });
    export default () => ({ read, async run() {}, async stop() {} });
  `;
  const env = { BATCH_SIZE: "5", SAGABOX_CONCURRENCY: "3" };
  expect(await loadApp("app.mjs", folderWith({ "app.mjs": app }))).toMatchObject({ read: env });
  expect(environmentOfBus(env)).toEqual({ SAGABOX_CONCURRENCY: "3" });
});

test("what an application prints while it is inspected goes to standard error", async () => {
  const app = `
    process.stdout.write("loading\\n");
    export default { async run() {}, async stop() { process.stdout.write("stopped\\n"); } };
  `;
  const out = vi.spyOn(process.stdout, "write");
  const err = vi.spyOn(process.stderr, "write").mockReturnValue(true);
  expect(await inspectApp("app.mjs", folderWith({ "app.mjs": app }), (bus) => "run" in bus)).toBe(true);
  expect(err.mock.calls.flat()).toEqual(expect.arrayContaining(["loading\n", "stopped\n"]));
  expect(out).not.toHaveBeenCalled();
});
