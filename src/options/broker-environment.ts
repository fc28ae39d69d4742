import { readFileSync } from "node:fs";
import { SagaboxError } from "../errors/index.ts";
import {
  brokerVariables,
  messageFormatVariable,
  type BrokerName,
  type messageFormats,
} from "./broker-variables.ts";
import { findVariable, type Environment, type ReadSecret } from "./environment.ts";
import type { EnvironmentVariable } from "./environment-variables.ts";

export interface BrokerEnvironment {
  readonly address?: string;
  /** Asked for each connection: where the password stands in a file, it is read anew. */
  readonly credentials?: () => { readonly username: string; readonly password: string };
  /** Authorities, in PEM. */
  readonly ca?: string;
  readonly mechanism?: "PLAIN" | "SCRAM-SHA-256" | "SCRAM-SHA-512";
  readonly format?: (typeof messageFormats)[number];
}

/** What the environment says about one broker. The transport's own options go before it. */
export function readBrokerEnvironment(
  broker: BrokerName,
  env: Environment,
  readSecret: ReadSecret = (path) => readFileSync(path, "utf8"),
): BrokerEnvironment {
  const variables = brokerVariables[broker];
  const get = <T>(variable: EnvironmentVariable<T>): T | undefined => {
    const found = findVariable(env, variable, readSecret);
    return found === undefined ? undefined : variable.read(found.name, found.value);
  };
  const address = get(variables.address);
  const username = get(variables.username);
  const ca = get(variables.ca);
  const mechanism = broker === "kafka" ? get(variables.mechanism) : undefined;
  const format = get(messageFormatVariable);
  if ((username === undefined) !== (get(variables.password) === undefined)) {
    throw new SagaboxError(
      "ENVIRONMENT_INVALID",
      `${variables.username.names[0]} and ${variables.password.names[0]} belong together: set both or neither.`,
    );
  }
  return {
    ...(address !== undefined && { address }),
    ...(username !== undefined && {
      credentials: () => ({ username, password: get(variables.password) ?? "" }),
    }),
    ...(ca !== undefined && { ca: contentsOf(variables.ca.names[0], ca, readSecret) }),
    ...(mechanism !== undefined && { mechanism }),
    ...(format !== undefined && { format }),
  };
}

function contentsOf(name: string, path: string, readSecret: ReadSecret): string {
  try {
    return readSecret(path);
  } catch (cause) {
    throw new SagaboxError("ENVIRONMENT_INVALID", `${name} names a file that cannot be read.`, { cause });
  }
}
