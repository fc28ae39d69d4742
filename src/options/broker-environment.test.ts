import { expect, test } from "vitest";
import { readBrokerEnvironment } from "./broker-environment.ts";
import { unknownVariables } from "./environment-variables.ts";

test("G11: the documents' own name of the brokers is understood, and ours wins over it", () => {
  expect(readBrokerEnvironment("kafka", { KAFKA_BOOTSTRAP_SERVERS: "a:9092,b:9092" })).toEqual({
    address: "a:9092,b:9092",
  });
  const both = { KAFKA_BOOTSTRAP_SERVERS: "a:9092", SAGABOX_KAFKA_BROKERS: "c:9092" };
  expect(readBrokerEnvironment("kafka", both).address).toBe("c:9092");
  expect(readBrokerEnvironment("nats", {})).toEqual({});
});

test("C2, G11: one variable says for all brokers how messages are written", () => {
  const env = { SAGABOX_MESSAGE_FORMAT: "cloudevents-binary" };
  for (const broker of ["rabbitmq", "kafka", "nats"] as const) {
    expect(readBrokerEnvironment(broker, env)).toEqual({ format: "cloudevents-binary" });
  }
  expect(() => readBrokerEnvironment("nats", { SAGABOX_MESSAGE_FORMAT: "avro" })).toThrowError(
    "SAGABOX_MESSAGE_FORMAT",
  );
  expect(unknownVariables(env)).toEqual([]);
});

test("B9, G11: a password in a file is read again for each connection", () => {
  const passwords = ["first", "second", "third"];
  const env = { SAGABOX_NATS_USERNAME: "shop", SAGABOX_NATS_PASSWORD_FILE: "password.txt" };
  const { credentials } = readBrokerEnvironment("nats", env, () => passwords.shift() ?? "");
  expect(credentials?.()).toEqual({ username: "shop", password: "second" });
  expect(credentials?.()).toEqual({ username: "shop", password: "third" });
});

test("G11: authorities are read from their file", () => {
  const env = { SAGABOX_RABBITMQ_CA: "ca.pem", SAGABOX_RABBITMQ_URL: "amqps://broker.example" };
  expect(readBrokerEnvironment("rabbitmq", env, (path) => `the text of ${path}`)).toEqual({
    address: "amqps://broker.example",
    ca: "the text of ca.pem",
  });
});

test.each([
  ["an address of another kind", { SAGABOX_RABBITMQ_URL: "http://secret-canary@x" }, "SAGABOX_RABBITMQ_URL"],
  ["a name without a password", { SAGABOX_RABBITMQ_USERNAME: "me" }, "SAGABOX_RABBITMQ_PASSWORD"],
  ["a password without a name", { SAGABOX_RABBITMQ_PASSWORD: "secret-canary" }, "SAGABOX_RABBITMQ_USERNAME"],
  ["a file that is not there", { SAGABOX_RABBITMQ_CA: "not/there.pem" }, "SAGABOX_RABBITMQ_CA"],
])("G11: %s is refused by its name, and nothing secret is repeated", (_, env, name) => {
  expect(() => readBrokerEnvironment("rabbitmq", env)).toThrowError(name);
  expect(() => readBrokerEnvironment("rabbitmq", env)).not.toThrowError(/secret-canary/);
});

test("G11: the variables of brokers are known, and a slip of the pen is found", () => {
  expect(unknownVariables({ SAGABOX_KAFKA_BROKERS: "", SAGABOX_NATS_PASSWORD_FILE: "" })).toEqual([]);
  expect(unknownVariables({ SAGABOX_KAFKA_BROKER: "" })).toEqual([
    { name: "SAGABOX_KAFKA_BROKER", suggestion: "SAGABOX_KAFKA_BROKERS" },
  ]);
  expect(unknownVariables({ SAGABOX_NATS_SASL_MECHANISM: "" })).toHaveLength(1);
});
