import type { JetStreamManager, StreamConfig, StreamInfo } from "@nats-io/jetstream";
import { SagaboxError } from "../../errors/index.ts";
import { apiCodes, nanos, natsClient } from "./client.ts";
import type { NatsSettings } from "./options.ts";
import { streamNames } from "./topology.ts";

type DeclaredStream = Partial<StreamConfig> & { readonly name: string; readonly description: string };

const formatMarker = (partitions: number): string => `sagabox, partitions: ${partitions}`;

/** What a server of this version can do beyond 2.9. */
export function findFeatures(version: string): { readonly compression: boolean } {
  const [major = 0, minor = 0] = version.split(".").map(Number);
  return { compression: major > 2 || (major === 2 && minor >= 10) };
}

/** The four streams of a prefix, as they are made. Full ones refuse instead of forgetting what nobody has read. */
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
      discard: "old", // the record before
      max_msgs_per_subject: 1,
    },
  ];
}

/** When each stream was created, by its name. A stream that is deleted and created again has another time. */
export type CreationTimes = ReadonlyMap<string, string>;

/**
 * Makes the streams that are missing. One that exists stays as its administrator has made it, so that a worker needs
 * no right to change it; only the number of partitions must agree, since it decides where a key goes.
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

/** True if the server knows that one of the streams does not exist. Rejects when it does not know. */
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

/** Returns when the stream was created. */
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
      `Stream ${config.name} was made for ${partitions} partitions, but nats.partitions is ${settings.partitions}. ` +
        "With another number the messages of one key would meet in two places and lose their order.",
    );
  }
  return found.created;
}

/** Warns of the streams that were deleted and created again since they were last seen. */
export function warnAboutRecreated(before: CreationTimes, now: CreationTimes, settings: NatsSettings): void {
  for (const [name, created] of now) {
    const last = before.get(name);
    if (last === undefined || last === created) continue;
    settings.warn(
      `Stream ${name} was deleted and has been created again. The messages that were in it are lost at the broker; ` +
        `"sagabox republish" sends those of a time window again.`,
    );
  }
}

export function isApiError(error: unknown, code: number): boolean {
  return error instanceof natsClient.client.jetstream.JetStreamApiError && error.code === code;
}
