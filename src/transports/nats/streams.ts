import type { JetStreamManager, StreamConfig } from "@nats-io/jetstream";
import { SagaboxError } from "../../errors/index.ts";
import { apiCodes, nanos, natsClient } from "./client.ts";
import type { NatsSettings } from "./options.ts";
import { streamNames } from "./topology.ts";

type Declared = Partial<StreamConfig> & { readonly name: string; readonly description: string };

const marker = (partitions: number): string => `sagabox, partitions: ${partitions}`;

/** What a server of this version can do beyond 2.9. */
export function featuresOf(version: string): { readonly compression: boolean } {
  const [major = 0, minor = 0] = version.split(".").map(Number);
  return { compression: major > 2 || (major === 2 && minor >= 10) };
}

/** The four streams of a prefix, as they are made. Full ones refuse instead of forgetting what nobody has read. */
export function streamConfigs(settings: NatsSettings, version: string): readonly Declared[] {
  const { prefix, replicas, partitions, compress } = settings;
  const names = streamNames(prefix);
  const common = {
    storage: "file",
    num_replicas: replicas,
    discard: "new",
    description: marker(partitions),
    ...(compress && featuresOf(version).compression ? { compression: "s2" as const } : {}),
  } as const;
  return [
    {
      ...common,
      name: names.messages,
      subjects: [`${prefix}.msg.>`],
      retention: "limits",
      max_age: nanos(settings.maxAgeMs),
      max_bytes: settings.maxStreamBytes,
      duplicate_window: nanos(settings.duplicateWindowMs),
    },
    {
      ...common,
      name: names.retries,
      subjects: [`${prefix}.retry.>`],
      retention: "workqueue",
      duplicate_window: nanos(settings.duplicateWindowMs),
    },
    {
      ...common,
      name: names.dead,
      subjects: [`${prefix}.dlq.>`],
      retention: "limits",
      max_age: nanos(settings.deadLetterMaxAgeMs),
      duplicate_window: nanos(Math.min(settings.duplicateWindowMs, settings.deadLetterMaxAgeMs || Infinity)),
    },
    {
      ...common,
      name: names.groups,
      subjects: [`${prefix}.group.>`, `${prefix}.topic.>`],
      retention: "limits",
      discard: "old", // the record before
      max_msgs_per_subject: 1,
    },
  ];
}

/**
 * Makes the streams that are missing. One that exists stays as its administrator has made it, so that a worker needs
 * no right to change it; only the number of partitions must agree, since it decides where a key goes.
 */
export async function declareStreams(
  jsm: JetStreamManager,
  settings: NatsSettings,
  version: string,
): Promise<void> {
  await Promise.all(streamConfigs(settings, version).map((config) => declareStream(jsm, config, settings)));
}

async function declareStream(jsm: JetStreamManager, config: Declared, settings: NatsSettings): Promise<void> {
  const found = await jsm.streams.info(config.name).catch((error: unknown) => {
    if (isApiError(error, apiCodes.streamNotFound)) return undefined;
    throw error;
  });
  const { description } = (found ?? (await jsm.streams.add(config))).config;
  const partitions = /partitions: (\d+)/.exec(description ?? "")?.[1];
  if (partitions !== undefined && partitions !== String(settings.partitions)) {
    throw new SagaboxError(
      "OPTIONS_INVALID",
      `Stream ${config.name} was made for ${partitions} partitions, but nats.partitions is ${settings.partitions}. ` +
        "With another number the messages of one key would meet in two places and lose their order.",
    );
  }
}

export function isApiError(error: unknown, code: number): boolean {
  return error instanceof natsClient.client.jetstream.JetStreamApiError && error.code === code;
}
