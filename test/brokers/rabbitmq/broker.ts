import { randomBytes } from "node:crypto";
import { inject } from "vitest";
import { rabbitmq, type RabbitMQOptions, type RabbitMQTransport } from "sagabox/rabbitmq";
import { connectForeignClient } from "./foreign-client.ts";
import { rabbitServerAt, type RabbitServer } from "../../support/brokers/rabbitmq-server.ts";

const found = inject("rabbitmq");

/** Why these tests cannot run here, if they cannot. */
export const missing = "missing" in found ? found.missing : undefined;
export const brokerUrl = "missing" in found ? "amqp://127.0.0.1:1" : found.url;

export const { directly, putBytes, lookInto } = connectForeignClient(brokerUrl);

/** The server of the run, which tests may kill and control. */
export function server(): RabbitServer {
  return rabbitServerAt(brokerUrl);
}

/** Names at the broker that no other test uses. */
export const ownPrefix = (): string => `t${randomBytes(5).toString("hex")}`;

const opened: RabbitMQTransport[] = [];

/** A transport with a prefix of its own unless one is given; `closeAll` ends it. */
export function transport(options: Partial<RabbitMQOptions> = {}): RabbitMQTransport {
  const made = rabbitmq({ url: brokerUrl, prefix: ownPrefix(), ...options });
  opened.push(made);
  return made;
}

export async function closeAll(): Promise<void> {
  await Promise.all(opened.splice(0).map((one) => one.close()));
}
