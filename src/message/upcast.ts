import { PayloadError } from "../errors/index.ts";
import type { AnyContract } from "./contract.ts";

/**
 * Converts data of an older version to the current version. The result must still be validated. Throws
 * PAYLOAD_VERSION_UNKNOWN if an upcaster is missing and PAYLOAD_INVALID if one fails.
 */
export function upcast(contract: AnyContract, version: number, data: unknown): unknown {
  if (version === contract.version) return data;
  let current = data;
  for (let step = version; step !== contract.version; step++) {
    const next = Object.hasOwn(contract.upcast, step) ? contract.upcast[step] : undefined;
    if (next === undefined) throw unknownVersion(contract, version);
    current = runUpcaster(contract, step, () => next(current) as unknown);
  }
  return current;
}

function runUpcaster(contract: AnyContract, step: number, move: () => unknown): unknown {
  try {
    return move();
  } catch (cause) {
    throw new PayloadError(
      "PAYLOAD_INVALID",
      `The upcaster of "${contract.name}" from version ${step} to ${step + 1} failed.`,
      { cause },
    );
  }
}

function unknownVersion(contract: AnyContract, version: number): PayloadError {
  const oldest = Math.min(contract.version, ...Object.keys(contract.upcast).map(Number));
  return new PayloadError(
    "PAYLOAD_VERSION_UNKNOWN",
    `"${contract.name}" of version ${version} cannot be read; this process reads versions ${oldest} to ${contract.version}.`,
  );
}
