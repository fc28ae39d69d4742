import { expect, test } from "vitest";
import { checkEnvironment } from "./check-environment.ts";
import { allProblems, inPart, listChecks, refuse, throwProblems } from "./checks.ts";
import { flag, milliseconds, oneOf, readEnvironment, rejectUnknownKeys, text, wholeNumber } from "./index.ts";

test("G11: all problems of some options are one error, and none of their texts is in it", () => {
  const read = () =>
    allProblems("The options", () => ({
      none: rejectUnknownKeys("shop", { prot: 1 }, ["port"]),
      port: wholeNumber("shop.port", "hunter2", { max: 65_535 }),
      lease: milliseconds("shop.lease", "soon"),
      level: oneOf("shop.level", "hunter2", ["low", "high"]),
      on: flag("shop.on", "hunter2"),
      name: text("shop.name", "hunter2", { max: 3 }),
    }));
  expect(read).toThrowError(
    /^The options cannot be used:\n- shop has no option "prot".*\n- shop\.port .*\n- shop\.lease .*\n- shop\.level .*\n- shop\.on .*\n- shop\.name [^\n]*$/,
  );
  expect(read).not.toThrowError(/hunter2/);
});

test("a single problem is told as it is, with its own code", () => {
  const read = () => allProblems("The options", () => rejectUnknownKeys("shop", { a: 1 }, ["port"]));
  expect(read).toThrowError(expect.objectContaining({ code: "OPTIONS_UNKNOWN_KEY" }));
  expect(allProblems("The options", () => wholeNumber("a", 1))).toBe(1);
});

test("what breaks on a refused value is no second problem, what breaks by itself is", () => {
  const read = () =>
    allProblems("The options", () => {
      const url = text("shop.url", 5);
      inPart(() => refuse("OPTIONS_INVALID", "shop.key is missing.", undefined), undefined);
      if (url === "") throw new TypeError("nothing to read");
    });
  expect(read).toThrowError(/shop\.url.*\n- shop\.key is missing\.$/);
  const broken = () =>
    allProblems("The options", () => {
      throw new TypeError("a bug of ours");
    });
  expect(broken).toThrowError("a bug of ours");
  expect(() => wholeNumber("shop.port", -1)).toThrowError("shop.port"); // and nothing is collected afterwards
});

test("whoever wants to decide about a problem gets it thrown, in the middle of a collection", () => {
  const read = () =>
    allProblems("The options", () => {
      expect(() => throwProblems(() => wholeNumber("inner", -1))).toThrowError("inner");
      wholeNumber("outer", -1);
    });
  expect(read).toThrowError("outer");
  expect(read).not.toThrowError("inner");
});

test("what is checked can be listed, with defaults and bounds", () => {
  const read = () => [wholeNumber("a", 3, { max: 9 }), oneOf("b", "x", ["x", "y"])];
  expect(listChecks(read)).toEqual([
    { name: "a", kind: "number", value: 3, min: 0, max: 9 },
    { name: "b", kind: "choice", value: "x", choices: ["x", "y"] },
  ]);
});

test("G11: at the start of a process the variables of brokers are checked with all others", () => {
  const check = () =>
    checkEnvironment({
      SAGABOX_PORT: "many",
      SAGABOX_KAFKA_BROKERS: "no port",
      SAGABOX_NATS_USERNAME: "shop",
      SAGABOX_RABBITMQ_PASSWORD_FILE: "/not/there",
      SAGABOX_MESSAGE_FORMAT: "avro",
    });
  const names = ["PORT", "MESSAGE_FORMAT", "RABBITMQ_PASSWORD_FILE", "KAFKA_BROKERS", "NATS_PASSWORD"];
  for (const name of names) expect(check).toThrowError(`SAGABOX_${name}`);
  expect(check).toThrowError(/^[^\n]*(\n- [^\n]*){5}$/); // what all brokers share is told once
});

test("G11: an empty secret file is told as such", () => {
  expect(() => readEnvironment({ DATABASE_URL_FILE: "url" }, () => "\n")).toThrowError(
    "DATABASE_URL_FILE names a file that is empty.",
  );
});

test("G11: the documents' ENCRYPTION_KEY is a ring of one key, which SAGABOX_KEY_RING wins over", () => {
  const key = "MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY=";
  const { keyRing = "" } = readEnvironment({ ENCRYPTION_KEY: key });
  // The guide to personal data computes the same with openssl.
  expect(keyRing).toBe(`encryption-key ${key}\nindex szTOt7VlaXoO4gh91Zg7EVOecyIGoFl97bTSfU4mjlQ=`);
  expect(readEnvironment({ ENCRYPTION_KEY_FILE: "key" }, () => `${key}\n`).keyRing).toBe(keyRing);
  expect(readEnvironment({ ENCRYPTION_KEY: key, SAGABOX_KEY_RING: "k1 x" }).keyRing).toBe("k1 x");
  expect(readEnvironment({ ENCRYPTION_KEY: "something of the application" })).toEqual({});
});
