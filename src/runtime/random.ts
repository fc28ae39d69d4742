import { randomBytes as cryptoBytes } from "node:crypto";

/** A number in [0, 1), for jitter and sampling; not for secrets. */
export function random(): number {
  return Math.random();
}

/** Bytes nobody can guess. */
export function randomBytes(count: number): Uint8Array {
  return cryptoBytes(count);
}

/** 128 unguessable bits as 32 hexadecimal digits: fences, passwords, names that must not collide. */
export function randomToken(): string {
  return cryptoBytes(16).toString("hex");
}
