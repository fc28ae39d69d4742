import type { Bench } from "./harness/bench.ts";
import type { Result } from "./harness/result.ts";
import { consumer } from "./inbox/consumer.ts";
import { latency } from "./publish/latency.ts";
import { payloads } from "./payloads/payloads.ts";
import { transaction } from "./publish/transaction.ts";
import { cost } from "./relay/cost.ts";
import { drain } from "./relay/drain.ts";
import { fetchCost } from "./relay/fetch-cost.ts";
import { memory } from "./relay/memory.ts";
import { oldSnapshot } from "./relay/old-snapshot.ts";
import { twoRelays } from "./relay/two-relays.ts";
import { sagaSteps } from "./sagas/steps.ts";
import { measureTracing } from "./telemetry/tracing.ts";
import { broker } from "./transports/broker.ts";
import { weight } from "./weight/weight.ts";

type Measurement = (bench: Bench) => Promise<Result[]>;

/** What each suite measures, by title. */
export const suites: Readonly<Record<string, Readonly<Record<string, Measurement>>>> = {
  relay: {
    "P1, P2: drain of a backlog": drain,
    "P8: what draining costs the database": cost,
    "P9: drain beside an old snapshot": oldSnapshot,
    "P10: fetch among many rows": fetchCost,
    "P11: two relays": twoRelays,
    "P15: memory": memory,
  },
  publish: {
    "P4: business transaction with an event": transaction,
    "P6: from commit to publish": latency,
  },
  transports: {
    "P3.rabbitmq: into and out of RabbitMQ": (bench) => broker(bench, "rabbitmq"),
    "P3.nats: into and out of NATS JetStream": (bench) => broker(bench, "nats"),
    "P3.kafka: into and out of Kafka": (bench) => broker(bench, "kafka"),
  },
  sagas: { "P13: steps of sagas": sagaSteps },
  telemetry: { "G3: what traces cost": measureTracing },
  payloads: { "C5, C6: large and personal payloads": payloads },
  inbox: { "P12: ways to handle a message": consumer },
  weight: { "import time, number of modules and package size": weight },
};
