import { expect, test } from "vitest";
import { countLoadedModules, measureFiles, parseFile } from "../../scripts/readability/measure.ts";

const path = "src/outbox/relay.ts";

test("function names are read from declarations, variables and methods", () => {
  const text = "function prepared() {}\nconst textOf = () => 1;\nclass Relay { checked() {} run() {} }\n";
  expect(measureFiles([parseFile(path, text)])).toMatchObject({
    functions: 4,
    bareParticiples: 2,
    ofNames: 1,
  });
});

test("comment lines without a subject, and those that begin with The same, are counted", () => {
  const text = "// Whoever reads this.\n/**\n * The same for sagas.\n * The relay sends it.\n */\nf();\n";
  expect(measureFiles([parseFile(path, text)])).toMatchObject({ vagueComments: 1, sameComments: 1 });
});

test("short files and files with one importer are counted, except index files", () => {
  const files = [
    parseFile("src/outbox/index.ts", 'export { a } from "./a.ts";\n'),
    parseFile("src/outbox/a.ts", 'import type { B } from "./b.ts";\nexport const a = {} as B;\n'),
    parseFile("src/outbox/b.ts", 'import { a } from "./a.ts";\nexport type B = typeof a;\n'),
  ];
  expect(measureFiles(files)).toMatchObject({ modules: 2, shortFiles: 2, singleImporters: 1 });
  expect(countLoadedModules(files, "src/outbox/index.ts")).toBe(2);
});

test("generated files are not measured", () => {
  expect(measureFiles([parseFile("src/storage/x.generated.ts", "function told() {}\n")]).functions).toBe(0);
});

test("a file of 501 lines and a function of 41 lines are warnings, except among statements", () => {
  const long = `function run() {${"\n".repeat(40)}}${"\n".repeat(461)}`;
  expect(measureFiles([parseFile(path, long)]).warnings).toEqual([
    `${path} has 501 lines; 500 are recommended`,
    `${path}:1 run has 41 lines; 40 are recommended`,
  ]);
  expect(measureFiles([parseFile("src/outbox/statements.ts", long)]).warnings).toEqual([]);
  const short = `function run() {${"\n".repeat(39)}}${"\n".repeat(461)}`;
  expect(measureFiles([parseFile(path, short)]).warnings).toEqual([]);
});
