import { expect, test } from "vitest";
import { findTransactionControl, findSavepointTags } from "./transaction-control.ts";

test.each([
  ["commit", "COMMIT"],
  ["COMMIT AND CHAIN", "COMMIT"],
  ["end", "END"],
  ["end transaction;", "END"],
  ["abort", "ABORT"],
  ["rollback", "ROLLBACK"],
  ["rollback work and chain", "ROLLBACK"],
  ["rollback; begin", "ROLLBACK"],
  ["rollback to a; rollback and chain", "ROLLBACK"],
  ["select 1; -- done\n commit", "COMMIT"],
  ["select ';'; commit", "COMMIT"],
  ["/* /* nested */ */ commit", "COMMIT"],
  ["select E'it\\'s'; commit", "COMMIT"],
  ["select $a$ ; $a$; commit", "COMMIT"],
  ["prepare transaction 'a'", "PREPARE TRANSACTION"],
  ["savepoint a; rollback and chain -- atomic", "ROLLBACK"],
  ["savepoint a -- one\r; rollback", "ROLLBACK"],
  ["-- one\rend", "END"],
])("%j ends the transaction", (text, command) => {
  expect(findTransactionControl(text)).toEqual({ kind: "end", command });
});

test.each([
  ["savepoint a", "SAVEPOINT"],
  ["release a", "RELEASE"],
  ["release savepoint a", "RELEASE"],
  ["rollback to a", "ROLLBACK TO"],
  ["rollback transaction to savepoint a", "ROLLBACK TO"],
  ["/* /* */ */ savepoint a", "SAVEPOINT"],
  ["insert into a values (1); savepoint b", "SAVEPOINT"],
])("%j uses a savepoint", (text, command) => {
  expect(findTransactionControl(text)).toEqual({ kind: "savepoint", command });
});

test.each([
  "select case when true then 1 end",
  "insert into note (text) values ('; commit')",
  "insert into note (text) values ('it''s; commit')",
  'select 1 as "; commit"',
  "select 1 -- ; commit",
  "select 1 /* ; commit */",
  "do $$ begin perform 1; end $$",
  "do $body$ begin perform $$x$$; commit; end $body$",
  "create function f() returns int begin atomic select 1; end",
  "prepare q as select 1",
  "commit prepared 'a'",
  "rollback prepared 'a'",
  "select * from release",
  "update job set state = 'commit' where id = $1",
  "select 'unterminated; commit",
  "select E'\\'; commit'",
  "select price$commit$price from t",
])("%j does neither", (text) => {
  expect(findTransactionControl(text)).toBeUndefined();
});

test.each([
  [
    "savepoint a; insert into t values ('rollback to a'); rollback to a; release a",
    "SAVEPOINT ROLLBACK RELEASE",
  ],
  ["select 'savepoint a'", ""],
  ["select 1", ""],
])("the server answers the savepoints of %j with %j", (text, tags) => {
  expect(findSavepointTags(text).join(" ")).toBe(tags);
});

test("a long text is read in one pass", () => {
  const text = `insert into note (text) values ${"('; commit'), /* ; */ ".repeat(20_000)} ('rollback')`;
  expect(findTransactionControl(text)).toBeUndefined();
});
