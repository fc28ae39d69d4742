import type { Readable } from "node:stream";
import {
  ClaimCheck,
  readClaimCheckSettings,
  Collector,
  catchStreamErrors,
  type AttachmentCipher,
  type AttachOptions,
  type ByteSource,
  type CollectReport,
} from "../claim-check/index.ts";
import { SagaboxError } from "../errors/index.ts";
import { inboxRetentionMs } from "../inbox/index.ts";
import type { Attachment } from "../message/index.ts";
import type { OutboxSettings } from "../outbox/index.ts";
import type { Queryable } from "../storage/index.ts";
import { isLocalTransport, type HomeDatabase, type Transport } from "../transport/index.ts";
import type { BusSettings } from "./bus-options.ts";
import { noPayloadStore, type PayloadStore } from "./payloads.ts";

/** What a bus does with large payloads and attachments. */
export interface BusClaimCheck {
  readonly shelf: PayloadStore;
  attach(source: ByteSource, options?: AttachOptions): Promise<Attachment>;
  /** `within`: the transaction of whoever opens it. */
  open(attachment: Attachment, within?: Queryable): Readable;
  /** Deletes what nobody needs; undefined without a claim check. */
  readonly collector: Collector | undefined;
}

/** What operators do with payloads. */
export interface BusPayloads {
  /** One round of the collector, which a running worker makes every hour. */
  collect(signal?: AbortSignal): Promise<CollectReport>;
}

const INLINE_BYTES = 1_048_576;

/** Undefined without a claim check. Without a transport PostgreSQL carries the messages. */
export function readClaimCheck(
  {
    claimCheck,
    deadLetterMs,
    inboxMs: retention,
  }: Pick<BusSettings, "claimCheck" | "deadLetterMs" | "inboxMs">,
  { retentionMs: archiveMs }: Pick<OutboxSettings, "retentionMs">,
  transport: Transport | undefined,
): ReturnType<typeof readClaimCheckSettings> {
  const inboxMs = inboxRetentionMs({ retention, deadLetters: deadLetterMs, archive: archiveMs });
  const isHome = transport === undefined || isLocalTransport(transport);
  return readClaimCheckSettings(claimCheck, isHome, { archiveMs, deadLetterMs, inboxMs });
}

export function wireClaimCheck(
  settings: BusSettings,
  outbox: OutboxSettings,
  transport: Transport,
  { database, schema, observer }: HomeDatabase,
  sealer: AttachmentCipher,
): BusClaimCheck {
  const { maxPayloadBytes } = settings;
  const chosen = readClaimCheck(settings, outbox, transport);
  if (chosen === undefined) return withoutClaimCheck(maxPayloadBytes ?? INLINE_BYTES);
  const home = { database, schema, observer };
  const transportMaxBytes = (): number => transport.capabilities.maxBytes;
  const shelf = new ClaimCheck({
    ...home,
    settings: chosen,
    carries: transportMaxBytes,
    maxPayloadBytes,
    sealer,
  });
  const { stores } = shelf;
  const { retentionMs, graceMs } = chosen;
  return {
    shelf,
    attach: (source, options) => shelf.attach(source, options),
    open: (attachment, within) => shelf.open(attachment, within),
    collector: new Collector({ ...home, stores, retentionMs, graceMs }),
  };
}

export function busPayloads({ collector }: Pick<BusClaimCheck, "collector">): BusPayloads {
  return {
    collect: (signal) =>
      collector === undefined ? Promise.reject(noClaimCheck()) : collector.collect(signal),
  };
}

function withoutClaimCheck(maxBytes: number): BusClaimCheck {
  return {
    shelf: noPayloadStore(maxBytes, noClaimCheck),
    attach: async (source) => {
      catchStreamErrors(source); // a stream that fails as well must not end the process
      throw noClaimCheck();
    },
    open: () => {
      throw noClaimCheck();
    },
    collector: undefined,
  };
}

function noClaimCheck(): SagaboxError<"CLAIM_STORE_UNKNOWN"> {
  return new SagaboxError(
    "CLAIM_STORE_UNKNOWN",
    "This bus has no claim check, so nothing can be put into a store or read from one. " +
      "Give createBus a `claimCheck` with a store that all services can reach.",
  );
}
