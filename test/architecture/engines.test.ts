import { spawnSync } from "node:child_process";
import { cpSync, mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { expect, onTestFinished, test } from "vitest";

const root = join(import.meta.dirname, "..", "..");
const major = Number(process.versions.node.split(".")[0]);

/** They declare Node 22 and run on 20, where our tests use them. There is no older release that could replace them. */
const DECLARE_NODE_22 = {
  kafkaClient: ["@platformatic/dynamic-buffer", "@platformatic/wasm-utils"],
  testsOfManifests: [
    "@kubernetes-models/apimachinery",
    "@kubernetes-models/base",
    "@kubernetes-models/external-secrets",
    "@kubernetes-models/validate",
    "kubernetes-models",
  ],
};

test.skipIf(major >= 22)(
  "npm ci on Node 20 warns of the packages that the docs name, and of no others",
  { timeout: 300_000 },
  () => {
    const folder = mkdtempSync(join(tmpdir(), "sagabox-engines-"));
    onTestFinished(() => rmSync(folder, { recursive: true, force: true }));
    for (const name of ["package.json", "package-lock.json"]) cpSync(join(root, name), join(folder, name));
    const words = ["ci", "--dry-run", "--offline", "--loglevel=warn"];
    const { status, stderr } = spawnSync("npm", words, { cwd: folder, encoding: "utf8" });
    expect(status, stderr).toBe(0);
    const warned = [...stderr.matchAll(/EBADENGINE +package: '(.+)@/g)].map(([, name]) => name);
    expect(new Set(warned)).toEqual(new Set(Object.values(DECLARE_NODE_22).flat()));
  },
);

test("the guide of Kafka and the page for contributors name those packages", () => {
  const text = (path: string): string => readFileSync(join(root, path), "utf8");
  for (const name of DECLARE_NODE_22.kafkaClient) expect(text("docs/guides/kafka.md")).toContain(name);
  expect(text("CONTRIBUTING.md")).toContain("kubernetes-models");
});
