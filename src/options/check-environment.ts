import { gatherBrokerEnvironment } from "./broker-environment.ts";
import type { BrokerName } from "./broker-variables.ts";
import {
  readSecretFromFile,
  gatherEnvironment,
  environmentInvalid,
  type Environment,
  type ReadSecret,
} from "./environment.ts";

const brokers: readonly BrokerName[] = ["rabbitmq", "kafka", "nats"];

/** Checks everything that the environment says, brokers included: whoever starts a process learns all of it at once. */
export function checkEnvironment(env: Environment, readSecret: ReadSecret = readSecretFromFile): void {
  const problems = [
    ...gatherEnvironment(env, readSecret).problems,
    ...brokers.flatMap((broker) => gatherBrokerEnvironment(broker, env, readSecret).problems),
  ];
  if (problems.length > 0) throw environmentInvalid([...new Set(problems)]);
}
