import { readFileSync, writeFileSync } from "node:fs";
import { expect, test, vi } from "vitest";
import {
  cliHarness,
  cliSamples,
  runSample,
  type CliSample,
  foreignTimes,
  addRecorded,
  shapeDifferences,
  buildShape,
  shapeText,
} from "../../test/support/cli-harness.ts";
import { commandNames } from "./run-cli.ts";

vi.setConfig({ testTimeout: 120_000 });

const golden = new URL("../../test/support/cli-json-shapes.txt", import.meta.url);

/** Data of the application, and what each kind of action or transition writes down about itself. */
const anything = ["data", "headers", "input", "result", "newState", "oldState", "before", "after", "keys"];

/** The recorded shapes by command line. */
function recorded(): ReadonlyMap<string, string> {
  const parts = readFileSync(golden, "utf8").split(/^(?=sagabox )/m);
  return new Map(
    parts.map((part) => {
      const end = part.indexOf("\n");
      return [part.slice(0, end), part.slice(end + 1).trimEnd()];
    }),
  );
}

/** One JSON text, or one in each line. */
function parsed(stdout: string): readonly unknown[] {
  try {
    return [JSON.parse(stdout)];
  } catch {
    return stdout
      .trim()
      .split("\n")
      .map((line) => JSON.parse(line) as unknown);
  }
}

function printsData({ silent, slow }: CliSample): boolean {
  return silent !== true && slow !== true;
}

test("--json has the same keys and types as recorded, for every action that prints data", async () => {
  const { url, fill } = await cliHarness();
  const known = recorded();
  const [seen, differences]: [Map<string, string>, string[]] = [new Map(), []];
  for (const name of commandNames) {
    for (const sample of (cliSamples[name] ?? []).filter(printsData)) {
      const told = await runSample(name, sample, { url, fill, more: ["--json"] });
      expect(sample.inVain === true ? [1] : [0, 3], `${told.line}\n${told.stderr}`).toContain(told.code);
      expect(told.stderr, told.line).toBe("");
      expect(foreignTimes(parsed(told.stdout)), `${told.line}: times that are not ISO 8601`).toEqual([]);
      const shape = buildShape(parsed(told.stdout), anything);
      const before = known.get(told.line) ?? "";
      const found = shapeDifferences(shape, before);
      addRecorded(shape, before);
      seen.set(told.line, shapeText(shape));
      differences.push(...found.map((difference) => `${told.line}: ${difference}`));
    }
  }
  // To record a change that is meant: RECORD_SHAPES=yes, and read what the file became.
  if (process.env["RECORD_SHAPES"] === "yes") {
    writeFileSync(golden, [...seen].map(([line, text]) => `${line}\n${text}\n`).join("\n"));
  } else {
    expect(differences).toEqual([]);
    expect([...known.keys()].filter((line) => !seen.has(line))).toEqual([]);
  }
});

test("a time as PostgreSQL writes it is told, wherever it stands, and one of ISO 8601 is not", () => {
  const theirs = "2026-11-17 00:09:51.73971+00";
  const ours = ["2026-11-17T00:09:51.739Z", "2026-11-17", "sent at 2026-11-17T00:09:51Z", "20 of 30"];
  expect(foreignTimes({ at: theirs, ours })).toEqual([`.at ${theirs}`]);
  expect(foreignTimes([{ rows: [{ why: `since ${theirs}` }] }])).toEqual([`[0].rows[0].why since ${theirs}`]);
  expect(foreignTimes({ at: "2026-11-17T00:09:51" })).toHaveLength(1); // of which zone?
});

test("a key that is new, gone, absent at times or of another type is told", () => {
  const before = shapeText(buildShape([{ at: "x", ids: ["a"], rows: [{ n: 1 }, { n: null, why: "x" }] }]));
  const changes = (after: object): readonly string[] => shapeDifferences(buildShape([after]), before);
  const rows = [{ n: 1 }];
  expect(changes({ at: "y", ids: [], rows: [{ n: null }] })).toEqual([]);
  expect(changes({ at: "y", ids: [], rows, more: 1 })).toEqual([". more is new"]);
  expect(changes({ ids: [], rows })).toEqual([". at is gone"]);
  expect(changes({ at: 5, ids: [1], rows })).toEqual([". at is number now", ". ids is list of number now"]);
  expect(changes({ at: "y", ids: [], rows: [] })).toEqual([".rows[] is gone"]);
  expect(changes({ at: "y", ids: [], rows: [{ n: 1, to: { x: 1 } }] })).toEqual([
    ".rows[] to is new",
    ".rows[].to is new",
  ]);
});
