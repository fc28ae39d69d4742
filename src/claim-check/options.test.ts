import { expect, test } from "vitest";
import { fileStore } from "./file-store.ts";
import { readClaimCheckSettings } from "./options.ts";
import { postgresStore } from "./postgres-store.ts";
import { s3Store } from "./s3/s3-store.ts";

const DAY = 86_400_000;
const others = { archiveMs: 30 * DAY, deadLetterMs: 14 * DAY, inboxMs: 32 * DAY };

test("with the Postgres transport, claim checks are on and use the database", () => {
  expect(readClaimCheckSettings(undefined, true, others)).toMatchObject({
    store: { id: "postgres" },
    threshold: 1_048_576,
    maxBytes: 67_108_864,
    retentionMs: 45 * DAY,
    graceMs: DAY,
  });
});

test("with a broker, claim checks are off without a store, and options without a store are rejected", () => {
  expect(readClaimCheckSettings(undefined, false, others)).toBeUndefined();
  expect(readClaimCheckSettings(false, true, others)).toBeUndefined();
  expect(() => readClaimCheckSettings({}, false, others)).toThrow(/claimCheck\.store is missing/);
});

test("a retention shorter than those of dependent rows is rejected with the reason", () => {
  expect(() => readClaimCheckSettings({ retention: "32d" }, true, others)).toThrow(
    /is 32 days, but must be at least 33 days.*archive.*30 days.*dead letter.*14 days/,
  );
  expect(readClaimCheckSettings({ retention: "33d" }, true, others)?.retentionMs).toBe(33 * DAY);
});

test("the default retention covers a message that is republished on its last day and dead-lettered", () => {
  const long = readClaimCheckSettings(undefined, true, {
    archiveMs: 90 * DAY,
    deadLetterMs: 60 * DAY,
    inboxMs: 92 * DAY,
  });
  expect(long?.retentionMs).toBe(151 * DAY);
});

test("two stores with one id, two databases and values that are not stores are rejected", () => {
  const store = fileStore({ folder: "/tmp/a" });
  const twice = { store, stores: [fileStore({ folder: "/tmp/b" })] };
  expect(() => readClaimCheckSettings(twice, true, others)).toThrow(/have the id "files"/);
  const databases = { store: postgresStore(), stores: [postgresStore({ id: "other" })] };
  expect(() => readClaimCheckSettings(databases, true, others)).toThrow(/more than one postgresStore/);
  expect(() => readClaimCheckSettings({ store: {} as never }, true, others)).toThrow(/must be stores/);
});

test.each([
  [{ threshold: 10 }, /threshold/],
  [{ maxBytes: 1 }, /maxBytes/],
  [{ grace: "1s" as const }, /grace/],
  [{ concurrency: 0 }, /concurrency/],
  [{ treshold: 5_000 } as object, /Did you mean "threshold"/],
])("%j is rejected", (options, text) => {
  expect(() => readClaimCheckSettings(options, true, others)).toThrow(text);
});

test.each([
  "http://s3.example.com",
  "ftp://s3.example.com",
  "s3.example.com",
  "http://127.0.0.1.example.com",
])("S3 at %s is rejected, because payloads would be sent unencrypted", (endpoint) => {
  expect(() => s3Store({ bucket: "payloads", endpoint })).toThrow(/https/);
});

test.each(["https://s3.example.com", "http://127.0.0.1:9000", "http://localhost:9000", "http://[::1]:9000"])(
  "S3 at %s is accepted",
  (endpoint) => {
    expect(s3Store({ bucket: "payloads", endpoint }).id).toBe("s3");
  },
);

test.each(["../up/", "/root/", "no-slash", "a//b/"])("the prefix %j is rejected", (prefix) => {
  expect(() => s3Store({ bucket: "payloads", prefix })).toThrow(/prefix/);
});
