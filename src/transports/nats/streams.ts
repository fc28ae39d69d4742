import type { JetStreamManager, StreamConfig, StreamInfo } from "@nats-io/jetstream";
import { SagaboxError } from "../../errors/index.ts";
import { apiCodes, nanos, natsClient } from "./client.ts";
import type { NatsSettings } from "./options.ts";
import { streamNames } from "./topology.ts";

type DeclaredStream = Partial<StreamConfig> & { readonly name: string; readonly description: string };

const formatMarker = (partitions: number): string => `sagabox, partitions: ${partitions}`;

/** Returns which optional features a server of this version has; 2.9 has none of them. */
export function findFeatures(version: string): { readonly compression: boolean } {
  const [major = 0, minor = 0] = version.split(".").map(Number);
  return { compression: major > 2 || (major === 2 && minor >= 10) };
}

/**
 * Returns the configuration of the four streams of a prefix. Full streams reject new messages instead of dropping
 * unread ones.
 */
export function streamConfigs(settings: NatsSettings, version: string): readonly DeclaredStream[] {
  const { prefix, replicas, partitions, compress } = settings;
  const names = streamNames(prefix);
  const common = {
    storage: "file",
    num_replicas: replicas,
    discard: "new",
    description: formatMarker(partitions),
    ...(compress && findFeatures(version).compression ? { compression: "s2" as const } : {}),
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
      discard: "old", // each subject keeps only the last version of its record
      max_msgs_per_subject: 1,
    },
  ];
}

/** Creation time of each stream, by name. A stream that was deleted and created again has a new one. */
export type CreationTimes = ReadonlyMap<string, string>;

/**
 * Creates missing streams. An existing stream keeps its configuration, so a worker needs no permission to change it.
 * Throws if its number of partitions differs from the options, because that number maps keys to partitions.
 */
export async function declareStreams(
  jsm: JetStreamManager,
  settings: NatsSettings,
  version: string,
): Promise<CreationTimes> {
  const declare = async (config: DeclaredStream): Promise<[string, string]> => [
    config.name,
    await declareStream(jsm, config, settings),
  ];
  return new Map(await Promise.all(streamConfigs(settings, version).map(declare)));
}

/** Returns true if the server answers that one of the streams does not exist. Rejects if the server cannot answer. */
export async function isStreamMissing(jsm: JetStreamManager, settings: NatsSettings): Promise<boolean> {
  const names = Object.values<string>({ ...streamNames(settings.prefix) });
  const found = await Promise.all(names.map((name) => findStream(jsm, name)));
  return found.includes(undefined);
}

function findStream(jsm: JetStreamManager, name: string): Promise<StreamInfo | undefined> {
  return jsm.streams.info(name).catch((error: unknown) => {
    if (isApiError(error, apiCodes.streamNotFound)) return undefined;
    throw error;
  });
}

/** Creates the stream if it is missing. Returns its creation time. */
async function declareStream(
  jsm: JetStreamManager,
  config: DeclaredStream,
  settings: NatsSettings,
): Promise<string> {
  const found = (await findStream(jsm, config.name)) ?? (await jsm.streams.add(config));
  const partitions = /partitions: (\d+)/.exec(found.config.description ?? "")?.[1];
  if (partitions !== undefined && partitions !== String(settings.partitions)) {
    throw new SagaboxError(
      "OPTIONS_INVALID",
      `Stream ${config.name} was created for ${partitions} partitions, but nats.partitions is ${settings.partitions}. ` +
        "With another number, messages of one key would go to two partitions and lose their order.",
    );
  }
  return found.created;
}

/** Warns about streams that were deleted and created again since the last check. */
export function warnAboutRecreated(before: CreationTimes, now: CreationTimes, settings: NatsSettings): void {
  for (const [name, created] of now) {
    const last = before.get(name);
    if (last === undefined || last === created) continue;
    settings.warn(
      `Stream ${name} was deleted and has been created again. The messages that were in it are lost at the broker; ` +
        `"sagabox republish" sends the messages of a time window again.`,
    );
  }
}

export function isApiError(error: unknown, code: number): boolean {
  return error instanceof natsClient.client.jetstream.JetStreamApiError && error.code === code;
}
