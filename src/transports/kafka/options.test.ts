import { expect, test } from "vitest";
import { kafkaSettings, type KafkaOptions } from "./options.ts";

const local = { brokers: ["127.0.0.1:9092"] };
const readSettings = (options: Partial<KafkaOptions>) => kafkaSettings({ ...local, ...options });

test("B2: the defaults are the agreed values", () => {
  expect(kafkaSettings(local)).toMatchObject({
    compression: "lz4",
    lingerMs: 10,
    batchBytes: 32_768,
    bufferBytes: 64 * 1_048_576,
    maxInFlight: 5,
    timeoutMs: 30_000,
    retryStepsMs: [10_000, 60_000, 300_000],
  });
});

test("settings cannot be changed afterwards", () => {
  const settings = kafkaSettings(local);
  expect(Object.isFrozen(settings)).toBe(true);
  expect(Object.isFrozen(settings.brokers)).toBe(true);
  expect(Object.isFrozen(settings.topics)).toBe(true);
});

test.each([
  [{ brokers: [] }, "kafka.brokers must be an array"],
  [{ brokers: ["kafka"] }, 'kafka.brokers[0] must be "host:port"'],
  [{ brokers: ["localhost:0"] }, 'must be "host:port"'],
  [{ brokers: ["localhost:70000"] }, 'must be "host:port"'],
  [{ maxInFlight: 6 }, "kafka.maxInFlight must be a whole number from 1 to 5"],
  [{ compression: "zip" }, "kafka.compression must be one of"],
  [{ prefix: "a b" }, "kafka.prefix must match"],
  [{ retrySteps: [] }, "kafka.retrySteps must be an array"],
  [{ retrySteps: ["60s", "10s"] }, "kafka.retrySteps must be in ascending order"],
  [{ topics: { partitions: 0 } }, "kafka.topics.partitions"],
  [{ topics: { partition: 3 } }, 'Did you mean "partitions"?'],
  [{ broker: ["x:1"] }, 'Did you mean "brokers"?'],
  [{ tls: { cs: "" } }, 'kafka.tls has no option "cs"'],
  [{ sasl: { mechanism: "plain", credentials: {} } }, "kafka.sasl.mechanism must be one of"],
  [{ sasl: { mechanism: "PLAIN", credentials: { username: "u" } } }, "kafka.sasl.credentials.password"],
  [{ sasl: { mechanism: "PLAIN", credentials: null } }, "must be { username, password }"],
  [{ warn: true }, "kafka.warn must be a function"],
  [{ timeout: "soon" }, "kafka.timeout must be a duration"],
])("%j is refused, and the reason names the option", (options, reason) => {
  expect(() => readSettings(options as unknown as Partial<KafkaOptions>)).toThrow(reason);
});

test.each(["localhost:9092", "127.0.0.1:9092", "127.1.2.3:9092", "[::1]:9092"])(
  "SEC-30: on this machine (%s) TLS is not needed",
  (broker) => {
    expect(kafkaSettings({ brokers: [broker] }).tls).toBeUndefined();
  },
);

test("SEC-30: brokers on other machines need TLS or allowInsecure", () => {
  const brokers = ["127.0.0.1:9092", "kafka.example:9092"];
  expect(() => kafkaSettings({ brokers })).toThrow("kafka.tls is needed");
  expect(kafkaSettings({ brokers, tls: true }).tls).toEqual({});
  expect(kafkaSettings({ brokers, allowInsecure: true }).tls).toBeUndefined();
});

test("SEC-31: PLAIN is refused without TLS on a network, even with allowInsecure", () => {
  const sasl = { mechanism: "PLAIN", credentials: { username: "u", password: "p" } } as const;
  const options = { brokers: ["kafka.example:9092"], sasl, allowInsecure: true };
  expect(() => kafkaSettings(options)).toThrow("PLAIN would send the password");
  expect(kafkaSettings({ ...options, tls: true }).sasl?.mechanism).toBe("PLAIN");
  expect(readSettings({ sasl }).sasl?.mechanism).toBe("PLAIN");
});

test("errors do not contain secrets", async () => {
  const sasl = {
    mechanism: "SCRAM-SHA-512",
    credentials: () => ({ username: "", password: "hunter2" }),
  } as const;
  await expect(readSettings({ sasl }).sasl?.credentials()).rejects.toThrow("username");
  await expect(readSettings({ sasl }).sasl?.credentials()).rejects.not.toThrow("hunter2");
});
