import { readBrokerEnvironment, type Environment } from "../../options/index.ts";
import type { NatsOptions } from "./options.ts";

/** The options, with what the environment says about whatever they leave open. */
export function withEnvironment(options: NatsOptions, env: Environment): NatsOptions {
  const { address, credentials, ca, format } = readBrokerEnvironment("nats", env);
  return {
    ...(address !== undefined && { servers: address.split(",") }),
    ...(credentials !== undefined && {
      credentials: () => {
        const { username, password } = credentials();
        return { user: username, password };
      },
    }),
    ...(ca !== undefined && { tls: { ca } }),
    ...(format !== undefined && { format }),
    ...options,
  };
}
