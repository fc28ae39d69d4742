import { keyRing, type KeyRing } from "sagabox/privacy";

const key = (fill: number): Uint8Array =>
  Uint8Array.from({ length: 32 }, (_, n) => (n * 7 + fill * 31) % 256);

/** A ring whose keys are the same in every test. */
export function testKeyRing(current = "2026-a", ...others: string[]): KeyRing {
  const names = [current, ...others];
  return keyRing({
    current,
    keys: Object.fromEntries(names.map((name) => [name, key(1 + name.charCodeAt(name.length - 1))])),
    index: key(200),
  });
}
