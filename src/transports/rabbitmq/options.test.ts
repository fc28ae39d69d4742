import { expect, test } from "vitest";
import { rabbitmq } from "./index.ts";
import { rabbitSettings, type RabbitMQOptions } from "./options.ts";

const url = "amqp://user:hunter2@localhost/shop";

test("a URL alone is enough", () => {
  expect(rabbitSettings({ url })).toMatchObject({
    addresses: [{ secure: false, hostname: "localhost", port: 5672, vhost: "shop" }],
    prefix: "dp",
    queues: "quorum",
    partitions: 8,
  });
  expect(rabbitSettings({ url: "amqps://shop:secret@broker.example/" }).addresses).toMatchObject([
    { secure: true, port: 5671, vhost: "/" },
  ]);
});

test.each([
  ["no credentials for another machine", { url: "amqps://broker.example/" }],
  ["two users", { url: ["amqp://a:1@localhost", "amqp://b:2@localhost"] }],
  ["TLS settings for an unencrypted URL", { url: "amqp://localhost", tls: { ca: "pem" } }],
])("SEC-30, SEC-32: %s is refused", (_, options) => {
  expect(() => rabbitSettings(options)).toThrowError(expect.objectContaining({ code: "OPTIONS_INVALID" }));
});

test("settings are frozen", () => {
  expect(Object.isFrozen(rabbitSettings({ url }))).toBe(true);
});

test("SEC-30: a broker on another machine needs amqps:// or allowInsecure", () => {
  const remoteUrl = "amqp://user:hunter2@broker.example";
  expect(() => rabbitmq({ url: remoteUrl })).toThrow("without encryption");
  expect(() => rabbitmq({ url: ["amqps://broker.example", remoteUrl] })).toThrow("without encryption");
  expect(() => rabbitmq({ url: remoteUrl, allowInsecure: true })).not.toThrow();
  for (const host of ["localhost", "127.0.0.1", "127.1.2.3", "[::1]"]) {
    expect(() => rabbitmq({ url: `amqp://${host}` })).not.toThrow();
  }
});

const wrong: readonly [string, Partial<Record<keyof RabbitMQOptions, unknown>>][] = [
  ["a missing URL", { url: undefined }],
  ["an empty array of URLs", { url: [] }],
  ["another protocol", { url: "http://user:hunter2@localhost" }],
  ["a URL without protocol", { url: "user:hunter2@localhost" }],
  ["query parameters in the URL", { url: `${url}?heartbeat=1` }],
  ["a prefix with dots", { prefix: "a.b" }],
  ["an empty prefix", { prefix: "" }],
  ["an unknown queue type", { queues: "mirrored" }],
  ["partitions that are not a power of two", { partitions: 6 }],
  ["too many partitions", { partitions: 512 }],
  ["broadcasts that are not an array", { broadcasts: "events.a" }],
  ["a delivery limit that is too low", { deliveryLimit: 3 }],
  ["an invalid duration", { confirmTimeout: "soon" }],
  ["a heartbeat too short for AMQP", { heartbeat: 10 }],
  ["disabled certificate verification", { tls: { rejectUnauthorized: false } }],
  ["credentials with an unknown property", { credentials: { username: "a", password: "hunter2", x: 1 } }],
  ["an empty password", { credentials: { username: "a", password: "" } }],
  ["a misspelt option", { prefetchCount: 1 } as never],
];

test.each(wrong)("%s is refused, and the error does not contain the password", (_, change) => {
  const options = { url, ...change } as RabbitMQOptions;
  let thrown: unknown;
  try {
    rabbitmq(options);
  } catch (error) {
    thrown = error;
  }
  expect(thrown).toMatchObject({ code: expect.stringMatching(/^OPTIONS_/) as string });
  expect(String(thrown)).not.toContain("hunter2");
});

test("B9: a credentials function is called for each connection", async () => {
  let count = 0;
  const settings = rabbitSettings({ url, credentials: () => ({ username: "a", password: `p${++count}` }) });
  expect(await settings.credentials()).toEqual({ username: "a", password: "p1" });
  expect(await settings.credentials()).toEqual({ username: "a", password: "p2" });
});
