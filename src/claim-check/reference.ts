import { PayloadError, SagaboxError } from "../errors/index.ts";
import { decodeJson, isBlobReference, type BlobReference, type Json } from "../message/index.ts";

/** Longer than any reference of ours. */
const MAX_BYTES = 1_024;

/** What a message carries in place of its data. */
export function referenceText({ store, key, bytes, sha256 }: BlobReference): string {
  return JSON.stringify({ $claim: { store, key, bytes, sha256 } });
}

/** The reference in what arrived, or an error: it must be one of ours to the letter, whoever sent it. */
export function readReference(text: string, maxBytes: number): BlobReference {
  const claim = parseClaim(text);
  if (!isBlobReference(claim)) throw invalid();
  if (claim.bytes > maxBytes) {
    throw new PayloadError(
      "PAYLOAD_TOO_LARGE",
      `The payload has ${claim.bytes} bytes; at most ${maxBytes} are fetched. Raise \`claimCheck.maxBytes\` to get it.`,
    );
  }
  return claim;
}

function parseClaim(text: string): Json | undefined {
  let value: Json;
  try {
    value = decodeJson(text, { maxBytes: MAX_BYTES, maxDepth: 4 });
  } catch (error) {
    throw invalid(error);
  }
  if (typeof value !== "object" || value === null || Array.isArray(value)) return undefined;
  const { $claim, ...rest } = value as { readonly [key: string]: Json | undefined };
  return Object.keys(rest).length === 0 ? $claim : undefined;
}

function invalid(cause?: unknown): SagaboxError<"CLAIM_INVALID"> {
  return new SagaboxError(
    "CLAIM_INVALID",
    "The message says that its payload lies in a store, but its data is no reference to one.",
    { cause },
  );
}
