import { readFile } from "node:fs/promises";
import { expect, test } from "vitest";
import { toQueryable } from "./caller-transaction.ts";
import { pgTooOldError } from "./pg-shape.ts";

const query = (): undefined => undefined;

test.each([
  ["of a pool", { query, release: query, connect: query, escapeIdentifier: query }],
  ["by itself", { query, connect: query, escapeIdentifier: query }],
])("a client %s that cannot tell whether it is inside a transaction is told to be replaced", (_, client) => {
  expect(() => toQueryable(client)).toThrowError(expect.objectContaining({ code: "STORAGE_CLIENT_TOO_OLD" }));
  expect(() => toQueryable(client)).toThrowError(/Install pg 8\.21 or newer/);
});

test("what is no client of pg at all is not told to be a newer one", () => {
  expect(() => toQueryable({ query, release: query, connect: query })).toThrowError(
    expect.objectContaining({ code: "NOT_IN_TRANSACTION" }),
  );
});

test.each([
  ["8.11.3", /since 8\.21; pg 8\.11\.3 is installed/],
  ["8.20.0", /since 8\.21; pg 8\.20\.0 is installed/],
  ["7.18.2", /since 8\.21; pg 7\.18\.2 is installed/],
  ["8.21.0", /since 8\.21\. Install/],
  ["9.0.0", /since 8\.21\. Install/],
])("with pg %s beside us the version is named only if it can be the client's", (installed, text) => {
  expect(pgTooOldError(installed).message).toMatch(text);
});

test("the range of the peer dependency begins where the error says", async () => {
  const { peerDependencies } = JSON.parse(
    await readFile(new URL("../../../package.json", import.meta.url), "utf8"),
  ) as { peerDependencies: Record<string, string> };
  expect(peerDependencies["pg"]).toBe(">=8.21 <9");
  expect(pgTooOldError("8.11.3").message).toContain("pg 8.21 or newer");
});
