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

/** The claim check of a bus: where large payloads and attachments are stored. */
export interface BusClaimCheck {
  readonly shelf: PayloadStore;
  attach(source: ByteSource, options?: AttachOptions): Promise<Attachment>;
  /** `within`: the transaction in which the caller opens the attachment. */
  open(attachment: Attachment, within?: Queryable): Readable;
  /** Deletes stored payloads that no message refers to; undefined without a claim check. */
  readonly collector: Collector | undefined;
}

/** The maintenance operations on stored payloads. */
export interface BusPayloads {
  /** Deletes unreferenced payloads now. A running worker does this every hour. Throws without a claim check. */
  collect(signal?: AbortSignal): Promise<CollectReport>;
}

const INLINE_BYTES = 1_048_576;

/** Reads the claim-check settings; undefined without a claim check. No transport means the PostgreSQL transport. */
export function readClaimCheck(
  {
    claimCheck,
    deadLetterRetentionMs: deadLetterMs,
    inboxRetentionMs: retention,
  }: Pick<BusSettings, "claimCheck" | "deadLetterRetentionMs" | "inboxRetentionMs">,
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
  const claimCheck = readClaimCheck(settings, outbox, transport);
  if (claimCheck === undefined) return withoutClaimCheck(maxPayloadBytes ?? INLINE_BYTES);
  const home = { database, schema, observer };
  const transportMaxBytes = (): number => transport.capabilities.maxBytes;
  const shelf = new ClaimCheck({
    ...home,
    settings: claimCheck,
    carries: transportMaxBytes,
    maxPayloadBytes,
    sealer,
  });
  const { stores } = shelf;
  const { retentionMs, graceMs } = claimCheck;
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
      catchStreamErrors(source); // an unhandled stream error would end the process
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
    "This bus has no claim check, so it cannot store or read large payloads and attachments. " +
      "Pass createBus a `claimCheck` with a store that all services can reach.",
  );
}
