import { readBrokerEnvironment, type Environment } from "../../options/index.ts";
import type { RabbitMQOptions } from "./options.ts";

/** The options, with what the environment says about whatever they leave open. */
export function withEnvironment(options: RabbitMQOptions, env: Environment): RabbitMQOptions {
  const { address, credentials, ca, format } = readBrokerEnvironment("rabbitmq", env);
  return {
    ...(address !== undefined && { url: address.split(",") }),
    ...(credentials !== undefined && { credentials }),
    ...(ca !== undefined && { tls: { ca } }),
    ...(format !== undefined && { format }),
    ...options,
  };
}
