import { createHash } from "node:crypto";
import type { LogName } from "./statements.ts";

/** Previous hash of the first seal. */
export const NO_HASH = "00".repeat(32);
/** Upper limit of transaction ids. A chain that ends here has been closed. */
export const LAST_XID = "18446744073709551615";
export const LAST_ID = "9223372036854775807";

const LEAF_CHARACTERS = 80;

/** A log row as recorded in a seal: its id and the SHA-256 of its canonical text. */
export interface Leaf {
  readonly id: string;
  readonly digest: string;
}

/**
 * The first row ids that a chain does not share with the chain before it. A closed chain is delimited by ids only, because
 * transaction ids start again in the next chain.
 */
export interface ChainBounds {
  readonly chain: number;
  readonly saga_after: string;
  readonly action_after: string;
}

/** A seal as it is stored. Hashes and leaves are hexadecimal. */
export interface Seal extends ChainBounds {
  readonly number: string;
  readonly log: LogName;
  readonly month: string;
  readonly xid_from: string;
  readonly xid_to: string;
  readonly saga_top: string;
  readonly action_top: string;
  readonly row_count: number;
  readonly leaves: string;
  readonly hash: string;
  readonly previous_hash: string;
  readonly sealed_at: string;
}

/** Computes a seal's hash: SHA-256 over the previous hash and the fields of the seal. The audit guide documents it. */
export function sealHash(seal: Omit<Seal, "hash">): string {
  const content = JSON.stringify([
    seal.number,
    seal.chain,
    seal.log,
    seal.month,
    seal.xid_from,
    seal.xid_to,
    seal.saga_after,
    seal.action_after,
    seal.saga_top,
    seal.action_top,
    seal.row_count,
    sha256(Buffer.from(seal.leaves, "hex")),
    seal.sealed_at,
  ]);
  return sha256(Buffer.concat([Buffer.from(seal.previous_hash, "hex"), Buffer.from(content)]));
}

/** Encodes each leaf as the row's id (8 bytes) and its SHA-256 (32 bytes), in hexadecimal. */
export function encodeLeaves(leaves: readonly Leaf[]): string {
  return leaves.map(({ id, digest }) => BigInt(id).toString(16).padStart(16, "0") + digest).join("");
}

export function decodeLeaves(text: string): readonly Leaf[] {
  return Array.from({ length: Math.floor(text.length / LEAF_CHARACTERS) }, (_, n) => {
    const leaf = text.slice(n * LEAF_CHARACTERS, (n + 1) * LEAF_CHARACTERS);
    return { id: BigInt(`0x${leaf.slice(0, 16)}`).toString(), digest: leaf.slice(16) };
  });
}

/** Returns the greater of two ids. Ids are strings because a bigint may exceed the safe integers. */
export function laterId(one: string, other: string): string {
  return BigInt(one) > BigInt(other) ? one : other;
}

function sha256(bytes: Uint8Array): string {
  return createHash("sha256").update(bytes).digest("hex");
}
