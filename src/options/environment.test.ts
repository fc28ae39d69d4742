import { expect, test } from "vitest";
import {
  checkEnvironment,
  environmentOfBus,
  environmentVariables,
  readEnvironment,
  unknownVariables,
} from "./index.ts";

test("G11: an empty environment sets no options", () => {
  expect(readEnvironment({})).toEqual({});
  expect(readEnvironment({ SAGABOX_SCHEMA: "" })).toEqual({});
});

test("G11: the general names of the requirements are read", () => {
  expect(
    readEnvironment({
      DATABASE_URL: "postgresql://app@db/shop",
      WORKER_ID: "worker-7d9f",
      BATCH_SIZE: "50",
      POLL_INTERVAL_SECONDS: "0.5",
      LOG_LEVEL: "WARNING",
    }),
  ).toEqual({
    databaseUrl: "postgresql://app@db/shop",
    workerId: "worker-7d9f",
    batchSize: 50,
    pollInterval: 500,
    logLevel: "warn",
  });
});

test("G11: SAGABOX_ names take precedence over general names", () => {
  const options = readEnvironment({
    BATCH_SIZE: "50",
    SAGABOX_BATCH_SIZE: "200",
    POLL_INTERVAL_SECONDS: "5",
    SAGABOX_POLL_INTERVAL: "250ms",
  });
  expect(options).toEqual({ batchSize: 200, pollInterval: 250 });
});

test.each([
  ["on", true],
  ["1", true],
  ["False", false],
  ["no", false],
])("the flag %s is %s", (value, expected) => {
  expect(readEnvironment({ SAGABOX_OPTIMISTIC: value })).toEqual({ optimistic: expected });
});

test("G11: all problems are reported at once, without the values", () => {
  const read = () =>
    readEnvironment({
      SAGABOX_BATCH_SIZE: "many",
      SAGABOX_PORT: "70000",
      DATABASE_URL: "mysql://root:hunter2@db",
    });
  expect(read).toThrowError(/DATABASE_URL.*\n.*SAGABOX_BATCH_SIZE.*\n.*SAGABOX_PORT/);
  expect(read).not.toThrowError(/hunter2/);
});

test("a general name that means something else to the host application is ignored", () => {
  expect(readEnvironment({ LOG_LEVEL: "trace", BATCH_SIZE: "0", WORKER_ID: "pod 1" })).toEqual({});
});

test("G11: a poll interval that is out of bounds is reported with the name of its variable", () => {
  expect(() => readEnvironment({ POLL_INTERVAL_SECONDS: "120" })).toThrowError(
    "POLL_INTERVAL_SECONDS must be from 10 ms to 1m, but is 2m.",
  );
  expect(() => readEnvironment({ SAGABOX_POLL_INTERVAL: "2m" })).toThrowError(
    /SAGABOX_POLL_INTERVAL must be/,
  );
  expect(readEnvironment({ POLL_INTERVAL_SECONDS: "often" })).toEqual({});
});

test("G11: a secret can be read from a file", () => {
  const read = (path: string) => (path === "/run/secrets/url" ? "postgres://app@db/shop\n" : "");
  expect(readEnvironment({ DATABASE_URL_FILE: "/run/secrets/url" }, read)).toEqual({
    databaseUrl: "postgres://app@db/shop",
  });
});

test("a secret that is set twice, or in a file that cannot be read, is a problem", () => {
  const url = "postgres://db/shop";
  expect(() => readEnvironment({ DATABASE_URL: url, DATABASE_URL_FILE: "/x" })).toThrowError(/are both set/);
  expect(() => readEnvironment({ DATABASE_URL_FILE: "/does/not/exist" })).toThrowError(
    "DATABASE_URL_FILE names a file that cannot be read: /does/not/exist (there is no such file).",
  );
  expect(() => readEnvironment({ DATABASE_URL_FILE: "/tmp" })).toThrowError("/tmp (it is a folder)");
});

test("a secret in place of its path is not repeated", () => {
  const confused = () => readEnvironment({ DATABASE_URL_FILE: "postgres://app:canary@db/shop" });
  expect(confused).toThrowError("there is no such file, and its value does not look like a path");
  expect(confused).not.toThrowError(/canary/);
});

test("G11: an unknown variable is reported with the name that was probably meant", () => {
  expect(unknownVariables({ SAGABOX_BATCHSIZE: "1", SAGABOX_PORT: "1", HOME: "/" })).toEqual([
    { name: "SAGABOX_BATCHSIZE", suggestion: "SAGABOX_BATCH_SIZE" },
  ]);
});

test("G11: only a name that is close to a variable is suggested", () => {
  expect(unknownVariables({ SAGABOX_PRT: "1", SAGABOX_COLOUR_OF_SKY: "blue" })).toEqual([
    { name: "SAGABOX_PRT", suggestion: "SAGABOX_PORT" },
    { name: "SAGABOX_COLOUR_OF_SKY", suggestion: undefined },
  ]);
});

test("G11: a bus outside the sagabox command reads no general name, and the addresses of servers", () => {
  const general = { BATCH_SIZE: "5", WORKER_ID: "pod", LOG_LEVEL: "debug", POLL_INTERVAL_SECONDS: "5" };
  const keys = { ENCRYPTION_KEY: "of the application", ENCRYPTION_KEY_FILE: "key" };
  const ours = { DATABASE_URL: "postgres://db", KAFKA_BOOTSTRAP_SERVERS: "a:9092", SAGABOX_BATCH_SIZE: "7" };
  expect(environmentOfBus({ ...general, ...keys, ...ours })).toEqual(ours);
});

test("each variable has a SAGABOX_ name and a meaning", () => {
  for (const variable of Object.values(environmentVariables)) {
    expect(variable.names[0]).toMatch(/^SAGABOX_[A-Z_]+$/);
    expect(variable.meaning).toMatch(/^[A-Z].*\.$/);
  }
});

test("G11: at the start of a process broker variables are checked with all others", () => {
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
  expect(check).toThrowError(/^[^\n]*(\n- [^\n]*){5}$/); // the variable that all brokers share is reported once
});

test("G11: an empty secret file is an error", () => {
  expect(() => readEnvironment({ DATABASE_URL_FILE: "url" }, () => "\n")).toThrowError(
    "DATABASE_URL_FILE names a file that is empty.",
  );
});

test("G11: ENCRYPTION_KEY is a key ring of one key, and SAGABOX_KEY_RING takes precedence", () => {
  const key = "MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY=";
  const { keyRing = "" } = readEnvironment({ ENCRYPTION_KEY: key });
  // The guide to personal data computes the same with openssl.
  expect(keyRing).toBe(`encryption-key ${key}\nindex szTOt7VlaXoO4gh91Zg7EVOecyIGoFl97bTSfU4mjlQ=`);
  expect(readEnvironment({ ENCRYPTION_KEY_FILE: "key" }, () => `${key}\n`).keyRing).toBe(keyRing);
  expect(readEnvironment({ ENCRYPTION_KEY: key, SAGABOX_KEY_RING: "k1 x" }).keyRing).toBe("k1 x");
  expect(readEnvironment({ ENCRYPTION_KEY: "something of the application" })).toEqual({});
});
