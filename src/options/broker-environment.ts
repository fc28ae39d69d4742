import { isSagaboxError } from "../errors/index.ts";
import {
  brokerVariables,
  messageFormatVariable,
  type BrokerName,
  type messageFormats,
} from "./broker-variables.ts";
import {
  findVariable,
  readSecretFromFile,
  environmentInvalid,
  gatherEnvironment,
  unreadableFile,
  type Environment,
  type ReadSecret,
} from "./environment.ts";
import { readVariable, type EnvironmentVariable } from "./environment-variables.ts";

export interface BrokerEnvironment {
  readonly address?: string;
  /** Called for each connection. A password file is read again on every call. */
  readonly credentials?: () => { readonly username: string; readonly password: string };
  /** Certificate authorities in PEM. */
  readonly ca?: string;
  readonly mechanism?: "PLAIN" | "SCRAM-SHA-256" | "SCRAM-SHA-512";
  readonly format?: (typeof messageFormats)[number];
}

/** Reads the settings of one broker from the environment. Options of the transport take precedence. Throws on problems. */
export function readBrokerEnvironment(
  broker: BrokerName,
  env: Environment,
  readSecret: ReadSecret = readSecretFromFile,
): BrokerEnvironment {
  const { options, problems } = gatherBrokerEnvironment(broker, env, readSecret);
  if (problems.length > 0) throw environmentInvalid(problems);
  return options;
}

export function gatherBrokerEnvironment(
  broker: BrokerName,
  env: Environment,
  readSecret: ReadSecret,
): { readonly options: BrokerEnvironment; readonly problems: readonly string[] } {
  const variables = brokerVariables[broker];
  const get = <T>(variable: EnvironmentVariable<T>): T | undefined => {
    const found = findVariable(env, variable, readSecret);
    return found === undefined ? undefined : readVariable(variable, found.name, found.value);
  };
  const problems: string[] = [];
  const part = <T>(read: () => T): T | undefined => {
    try {
      return read();
    } catch (error) {
      if (!isSagaboxError(error)) throw error;
      problems.push(error.message);
      return undefined;
    }
  };
  const address = part(() => get(variables.address));
  const username = part(() => get(variables.username));
  const file = part(() => get(variables.ca));
  const ca = part(() =>
    file === undefined ? undefined : readFileContents(variables.ca.names[0], file, readSecret),
  );
  const mechanism = broker === "kafka" ? part(() => get(variables.mechanism)) : undefined;
  const format = part(() => get(messageFormatVariable));
  const before = problems.length;
  const password = part(() => get(variables.password));
  if (problems.length === before && (username === undefined) !== (password === undefined)) {
    const [user, secret] = [variables.username.names[0], variables.password.names[0]];
    problems.push(`${user} and ${secret} belong together: set both or neither.`);
  }
  const options = {
    ...(address !== undefined && { address }),
    ...(username !== undefined && {
      credentials: () => ({ username, password: get(variables.password) ?? "" }),
    }),
    ...(ca !== undefined && { ca }),
    ...(mechanism !== undefined && { mechanism }),
    ...(format !== undefined && { format }),
  };
  return { options, problems };
}

function readFileContents(name: string, path: string, readSecret: ReadSecret): string {
  try {
    return readSecret(path);
  } catch (cause) {
    throw unreadableFile(name, path, cause);
  }
}

const brokers: readonly BrokerName[] = ["rabbitmq", "kafka", "nats"];

/** Checks all environment variables, also of brokers, and throws one error that lists every problem. */
export function checkEnvironment(env: Environment, readSecret: ReadSecret = readSecretFromFile): void {
  const problems = [
    ...gatherEnvironment(env, readSecret).problems,
    ...brokers.flatMap((broker) => gatherBrokerEnvironment(broker, env, readSecret).problems),
  ];
  if (problems.length > 0) throw environmentInvalid([...new Set(problems)]);
}
