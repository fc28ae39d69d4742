import { readBrokerEnvironment, type Environment } from "../../options/index.ts";
import type { KafkaOptions } from "./options.ts";

/** The options, with what the environment says about whatever they leave open. */
export function withEnvironment(options: KafkaOptions, env: Environment): KafkaOptions {
  const { address, credentials, ca, mechanism, format } = readBrokerEnvironment("kafka", env);
  return {
    ...(address !== undefined && { brokers: address.split(",") }),
    ...(credentials !== undefined && { sasl: { mechanism: mechanism ?? "SCRAM-SHA-512", credentials } }),
    ...(ca !== undefined && { tls: { ca } }),
    ...(format !== undefined && { format }),
    ...options,
  };
}
