import { expect, test } from "vitest";
import { seededRandom } from "../../../test/support/random-data.ts";
import { roleNames, roles, rightsForRole } from "./roles.ts";
import { quoteRoles, rolesSql } from "./roles-sql.ts";

test.each(["", "Sagabox_", "pg_box_", '"', "a'b", "a b", "a;drop", "1a", "ä", "a".repeat(56), "a\n", "a\0"])(
  "SEC-13: prefix %j is refused",
  (prefix) => {
    expect(() => rolesSql({ schema: "sagabox", prefix })).toThrow(
      expect.objectContaining({ code: "OPTIONS_INVALID" }),
    );
  },
);

test("SEC-13: of 100,000 prefixes only plain names get through, each quoted whole", () => {
  const random = seededRandom(7);
  const letters = "a b _ z 0 9 Z ' \" \\ ; -- \n \0 $ % ( é pg_".split(" ");
  let accepted = 0;
  for (let n = 0; n < 100_000; n++) {
    const length = Math.floor(random() * 8);
    const prefix = Array.from({ length }, () => letters[Math.floor(random() * letters.length)]).join("");
    try {
      expect(quoteRoles(prefix).owner).toBe(`"${prefix}owner"`);
      expect(prefix).toMatch(/^(?!pg_)[a-z_][a-z0-9_]*$/);
      accepted++;
    } catch (error) {
      if ((error as { code?: string }).code !== "OPTIONS_INVALID") throw error;
    }
  }
  expect(accepted).toBeGreaterThan(100);
});

test("SEC-13: a schema name that could not be one is refused before anything is printed", () => {
  expect(() => rolesSql({ schema: 'x"; drop' })).toThrow(
    expect.objectContaining({ code: "SCHEMA_NAME_INVALID" }),
  );
});

test("SEC-35: the statistics of the whole server are offered to operators, and given to nobody", () => {
  const lines = rolesSql({ schema: "sagabox" }).split("\n");
  expect(lines.filter((line) => line.includes("pg_read_all_stats"))).toEqual([
    '-- grant pg_read_all_stats to "sagabox_operator";',
  ]);
});

test("SEC-35: a plain writer inserts, and reads nothing but ids and keys it seals with", () => {
  const reads = [...rightsForRole("writer")]
    .filter(([, can]) => can.select !== undefined)
    .map(([name]) => name);
  expect(reads.toSorted()).toEqual(
    [
      "blob",
      "blob_home",
      "blob_use",
      "index_fingerprint",
      "message",
      "personal_type",
      "published_id",
      "scheduled",
      "schema_migration",
      "subject_key",
    ].toSorted(),
  );
  for (const table of ["message", "scheduled", "published_id"] as const) {
    expect(rightsForRole("writer").get(table)).toEqual({
      insert: "all",
      select: table === "message" ? ["id", "seq"] : ["id"],
    });
  }
  const removes = [...rightsForRole("writer")].filter(([, can]) => can.delete !== undefined);
  expect(removes).toEqual([]);
  expect(rightsForRole("writer", ["optimistic"]).get("outbox")?.delete).toBe("all");
});

test("every right has a reason, and nobody but the owner may truncate or change what is written once", () => {
  for (const name of roleNames) {
    for (const { why } of roles[name].grants) expect(why.length).toBeGreaterThan(5);
    for (const table of ["message", "receipt", "saga_audit_log", "audit_log", "audit_seal"] as const) {
      const can = rightsForRole(name, ["optimistic", "overflow"]).get(table) ?? {};
      expect([can.update, can.delete], `${name} on ${table}`).toEqual([undefined, undefined]);
    }
  }
});
