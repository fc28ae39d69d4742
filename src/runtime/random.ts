import { randomBytes as cryptoBytes } from "node:crypto";

/** A number in [0, 1), for jitter and sampling; not for secrets. */
export function random(): number {
  return Math.random();
}

/** Cryptographically secure random bytes. */
export function randomBytes(count: number): Uint8Array {
  return cryptoBytes(count);
}

/**
 * 128 cryptographically secure random bits as 32 hexadecimal digits, for fences, passwords and unique names.
 */
export function randomToken(): string {
  return cryptoBytes(16).toString("hex");
}
