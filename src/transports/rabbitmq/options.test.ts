import { expect, test } from "vitest";
import { rabbitmq } from "./index.ts";
import { rabbitSettings, type RabbitMQOptions } from "./options.ts";

const url = "amqp://user:hunter2@localhost/shop";

test("a bare address is enough", () => {
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
  ["no name and password for another machine", { url: "amqps://broker.example/" }],
  ["two users", { url: ["amqp://a:1@localhost", "amqp://b:2@localhost"] }],
  ["authorities for an address in clear text", { url: "amqp://localhost", tls: { ca: "pem" } }],
])("SEC-30, SEC-32: %s is refused", (_, options) => {
  expect(() => rabbitSettings(options)).toThrowError(expect.objectContaining({ code: "OPTIONS_INVALID" }));
});

test("settings are frozen", () => {
  expect(Object.isFrozen(rabbitSettings({ url }))).toBe(true);
});

test("SEC-30: another machine is spoken to under TLS, unless it is said otherwise", () => {
  const elsewhere = "amqp://user:hunter2@broker.example";
  expect(() => rabbitmq({ url: elsewhere })).toThrow("without encryption");
  expect(() => rabbitmq({ url: ["amqps://broker.example", elsewhere] })).toThrow("without encryption");
  expect(() => rabbitmq({ url: elsewhere, allowInsecure: true })).not.toThrow();
  for (const near of ["localhost", "127.0.0.1", "127.1.2.3", "[::1]"]) {
    expect(() => rabbitmq({ url: `amqp://${near}` })).not.toThrow();
  }
});

const wrong: readonly [string, Partial<Record<keyof RabbitMQOptions, unknown>>][] = [
  ["no address", { url: undefined }],
  ["an empty list of addresses", { url: [] }],
  ["another protocol", { url: "http://user:hunter2@localhost" }],
  ["no address at all", { url: "user:hunter2@localhost" }],
  ["parameters in the address", { url: `${url}?heartbeat=1` }],
  ["a prefix with dots", { prefix: "a.b" }],
  ["an empty prefix", { prefix: "" }],
  ["another kind of queue", { queues: "mirrored" }],
  ["partitions that are no power of two", { partitions: 6 }],
  ["too many partitions", { partitions: 512 }],
  ["broadcasts that are no list", { broadcasts: "events.a" }],
  ["a delivery limit that leaves us no room", { deliveryLimit: 3 }],
  ["a time that is none", { confirmTimeout: "soon" }],
  ["a heartbeat too short for AMQP", { heartbeat: 10 }],
  ["a certificate that is not verified", { tls: { rejectUnauthorized: false } }],
  ["credentials with something else in them", { credentials: { username: "a", password: "hunter2", x: 1 } }],
  ["an empty password", { credentials: { username: "a", password: "" } }],
  ["a misspelt option", { prefetchCount: 1 } as never],
];

test.each(wrong)("%s is refused, and the password is not told", (_, change) => {
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

test("B9: credentials may be asked for anew at each connection", async () => {
  let count = 0;
  const settings = rabbitSettings({ url, credentials: () => ({ username: "a", password: `p${++count}` }) });
  expect(await settings.credentials()).toEqual({ username: "a", password: "p1" });
  expect(await settings.credentials()).toEqual({ username: "a", password: "p2" });
});
