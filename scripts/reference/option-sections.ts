import { busOptions } from "../../src/app/bus-options.ts";
import { drainOptions } from "../../src/app/drain.ts";
import { logOptions } from "../../src/app/log-options.ts";
import { auditOptions } from "../../src/audit/entry.ts";
import { claimCheckOptions } from "../../src/claim-check/options.ts";
import { s3StoreOptions } from "../../src/claim-check/s3/s3-options.ts";
import { embeddedOptions } from "../../src/embedded/options.ts";
import { inboxOptions } from "../../src/inbox/inbox.ts";
import { batchOptions, consumerOptions, handlerOptions } from "../../src/inbox/options.ts";
import { webhookOptions } from "../../src/notify/options.ts";
import type { OptionTable } from "../../src/options/index.ts";
import {
  breakerOptions,
  brokerDepthOptions,
  outboxOptions,
  overflowOptions,
} from "../../src/outbox/options.ts";
import { privacyOptions } from "../../src/privacy/options.ts";
import { retryOptions } from "../../src/retry/retry-policy.ts";
import { sagaOptions } from "../../src/saga/options.ts";
import { kafkaOptions, topicOptions } from "../../src/transports/kafka/options.ts";
import { natsOptions } from "../../src/transports/nats/options.ts";
import { postgresOptions } from "../../src/transports/postgres/options.ts";
import { rabbitOptions } from "../../src/transports/rabbitmq/options.ts";

/** A table of the configuration reference. */
export interface OptionSection {
  /** The name of the table on the page. */
  readonly table: string;
  /** Begins the full names of its options. */
  readonly path: string;
  readonly tables: readonly {
    readonly file: string;
    /** The name of the table or interface in the file. */
    readonly name: string;
    /** The options as data; undefined for an interface. */
    readonly options?: OptionTable;
    /** Begins the names of options of an option: "breaker." */
    readonly below?: string;
    /** Options that have a table of their own. */
    readonly without?: readonly string[];
  }[];
  /** Bounds that depend on other options, in words. */
  readonly follows?: Readonly<Record<string, string>>;
}

export const optionSections: readonly OptionSection[] = [
  {
    table: "createBus",
    path: "",
    tables: [
      {
        file: "src/app/bus-options.ts",
        name: "busOptions",
        options: busOptions,
        without: ["outbox", "inbox", "sagas", "audit", "privacy", "notify", "claimCheck"],
      },
    ],
  },
  section("drain", "src/app/drain.ts", { drainOptions }),
  section("log", "src/app/log-options.ts", { logOptions }),
  {
    table: "openTelemetry",
    path: "openTelemetry",
    tables: [{ file: "src/telemetry/opentelemetry/index.ts", name: "OpenTelemetryOptions" }],
  },
  {
    table: "outbox",
    path: "outbox",
    tables: [
      {
        file: "src/outbox/options.ts",
        name: "outboxOptions",
        options: outboxOptions,
        without: ["overflow", "breaker", "brokerDepth"],
      },
      {
        file: "src/outbox/options.ts",
        name: "overflowOptions",
        options: overflowOptions,
        below: "overflow.",
      },
      { file: "src/outbox/options.ts", name: "breakerOptions", options: breakerOptions, below: "breaker." },
      {
        file: "src/outbox/options.ts",
        name: "brokerDepthOptions",
        options: brokerDepthOptions,
        below: "brokerDepth.",
      },
    ],
    follows: { "breaker.maxCooldown": "`breaker.cooldown` – 1 h", "brokerDepth.resumeAt": "below the limit" },
  },
  section("inbox", "src/inbox/inbox.ts", { inboxOptions }),
  {
    table: "on",
    path: "on",
    tables: [
      {
        file: "src/inbox/options.ts",
        name: "handlerOptions",
        options: handlerOptions,
        without: ["batch", "retry"],
      },
      { file: "src/inbox/options.ts", name: "batchOptions", options: batchOptions, below: "batch." },
      { file: "src/inbox/options.ts", name: "consumerOptions", options: consumerOptions },
    ],
  },
  section("retry", "src/retry/retry-policy.ts", { retryOptions }),
  section("sagas", "src/saga/options.ts", { sagaOptions }),
  {
    ...section("claimCheck", "src/claim-check/options.ts", { claimCheckOptions }),
    follows: { retention: "at least the longest of archive, dead letters and inbox, and a day" },
  },
  section("s3Store", "src/claim-check/s3/s3-options.ts", { s3StoreOptions }),
  section("privacy", "src/privacy/options.ts", { privacyOptions }),
  section("audit", "src/audit/entry.ts", { auditOptions }),
  section("notify", "src/notify/options.ts", { webhookOptions }, "webhook."),
  section("postgres", "src/transports/postgres/options.ts", { postgresOptions }),
  section("rabbitmq", "src/transports/rabbitmq/options.ts", { rabbitOptions }),
  {
    table: "kafka",
    path: "kafka",
    tables: [
      {
        file: "src/transports/kafka/options.ts",
        name: "kafkaOptions",
        options: kafkaOptions,
        without: ["topics"],
      },
      {
        file: "src/transports/kafka/options.ts",
        name: "topicOptions",
        options: topicOptions,
        below: "topics.",
      },
    ],
  },
  section("nats", "src/transports/nats/options.ts", { natsOptions }),
  section("embedded", "src/embedded/options.ts", { embeddedOptions }),
];

function section(
  table: string,
  file: string,
  named: Readonly<Record<string, OptionTable>>,
  below = "",
): OptionSection {
  const tables = Object.entries(named).map(([name, options]) => ({ file, name, options, below }));
  return { table, path: table, tables };
}
