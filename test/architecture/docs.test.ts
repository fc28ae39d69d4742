import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { expect, test } from "vitest";
import { allBrokerVariables } from "../../src/options/broker-variables.ts";
import { pages, withSnippets } from "../../scripts/build-snippets.ts";
import { rooms } from "./rooms.ts";
import { filesBelow, projectRoot } from "./source-file.ts";

const markdown = filesBelow(".", ".md");

test("code in the docs is as the files it was cut from (otherwise: npx tsx scripts/build-snippets.ts)", async () => {
  for (const path of pages) {
    const page = readFileSync(join(projectRoot, path), "utf8");
    expect(await withSnippets(page), path).toBe(page);
  }
});

test("no TypeScript stands in a page that was not cut from a file that runs", () => {
  const stray = markdown.flatMap(({ path, text }) => {
    const blocks = text.match(/^```(ts|typescript|tsx)$/gm)?.length ?? 0;
    const cut = text.match(/^<!-- snippet: \S+ -->\n\n```ts$/gm)?.length ?? 0;
    return blocks === cut && (cut === 0 || pages.includes(path)) ? [] : [path];
  });
  expect(stray).toEqual([]);
});

test.each(["rabbitmq", "kafka", "nats"] as const)(
  "the guide to %s names its variables and what the log says when a consumer is cut off",
  (broker) => {
    const guide = readFileSync(join(projectRoot, `docs/guides/${broker}.md`), "utf8");
    const variables = allBrokerVariables()
      .flatMap(({ names }) => names)
      .filter((name) => name.startsWith(`SAGABOX_${broker.toUpperCase()}_`));
    const wanted = [...variables, "consumer.interrupted", "consumer.resumed"];
    expect(variables.length).toBeGreaterThan(3);
    expect(wanted.filter((name) => !guide.includes(`\`${name}\``))).toEqual([]);
  },
);

test("the map in ARCHITECTURE.md names every room", () => {
  const map = readFileSync(join(projectRoot, "ARCHITECTURE.md"), "utf8");
  const outer = Object.keys(rooms).filter(
    (name) => !name.includes("/") && existsSync(join(projectRoot, "src", name)),
  );
  expect(outer.length).toBeGreaterThan(20);
  expect(outer.filter((name) => !map.includes(`[${name}](src/${name}/index.ts)`))).toEqual([]);
});

test("every import of a room leads to a lower level of the picture in ARCHITECTURE.md", () => {
  const map = readFileSync(join(projectRoot, "ARCHITECTURE.md"), "utf8");
  const levels = new Map<string, number>();
  for (const [, level, names = ""] of map.matchAll(/^ ?(\d+) {2}(\S+(?: · \S+)*) {2}/gm)) {
    for (const name of names.split(" · ")) levels.set(name, Number(level));
  }
  const folder = (room: string): string =>
    room.startsWith("transports/") ? "transports/*" : room.replace(/\/.*/, "");
  const levelOf = (room: string): number | undefined => levels.get(folder(room));
  const drawn = Object.entries(rooms).filter(([room]) => existsSync(join(projectRoot, "src", room)));
  const wrong = drawn.flatMap(([room, { rooms: imported }]) =>
    imported
      .filter((other) => existsSync(join(projectRoot, "src", other)) && folder(other) !== folder(room))
      .filter((other) => !(Number(levelOf(other)) < Number(levelOf(room))))
      .map((other) => `${room} imports ${other}`),
  );
  expect(drawn.filter(([room]) => levelOf(room) === undefined)).toEqual([]);
  expect(wrong).toEqual([]);
});

test("links in the pages of the package lead to files of the package", () => {
  const { files } = JSON.parse(readFileSync(join(projectRoot, "package.json"), "utf8")) as {
    files: string[];
  };
  const shipped = [
    ...files.filter((entry) => !entry.startsWith("!")),
    "README.md",
    "LICENSE",
    "package.json",
  ];
  const isShipped = (path: string): boolean =>
    shipped.some((entry) => path === entry || path.startsWith(`${entry}/`)) &&
    !/^src\/.*\.test(-d)?\.ts$|^ops\/prometheus\/tests/.test(path);
  const links = markdown
    .filter(({ path }) => isShipped(path))
    .flatMap(({ path, text }) =>
      [...text.replaceAll(/```[^]*?```/g, "").matchAll(/\]\(([^)\s#]+)/g)]
        .map(([, target = ""]) => target)
        .filter((target) => !/^[a-z]+:/.test(target))
        .map((target) => ({ path, target: join(path, "..", target).replace(/\/$/, "") })),
    );
  expect(links.length).toBeGreaterThan(300);
  expect(links.filter(({ target }) => !isShipped(target))).toEqual([]);
});

test("every page is reached from the README", () => {
  const docs = markdown.filter(({ path }) => path.startsWith("docs/"));
  const reached = new Set(["README.md"]);
  for (const path of reached) {
    const { text = "" } = markdown.find((page) => page.path === path) ?? {};
    for (const [, target = ""] of text.matchAll(/\]\(([^)#\s]+\.md)(?:#[^)]*)?\)/g)) {
      if (!target.includes(":")) reached.add(join(path, "..", target));
    }
  }
  expect(docs.length).toBeGreaterThan(10);
  expect(docs.map(({ path }) => path).filter((path) => !reached.has(path))).toEqual([]);
});
