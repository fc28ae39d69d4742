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

/** Checks all environment variables, those of brokers included, and throws one error that lists every problem. */
export function checkEnvironment(env: Environment, readSecret: ReadSecret = readSecretFromFile): void {
  const problems = [
    ...gatherEnvironment(env, readSecret).problems,
    ...brokers.flatMap((broker) => gatherBrokerEnvironment(broker, env, readSecret).problems),
  ];
  if (problems.length > 0) throw environmentInvalid([...new Set(problems)]);
}
