import type { SagaVault } from "../saga/index.ts";
import type { Bus } from "./bus.ts";

const vaults = new WeakMap<Bus, SagaVault>();

export function rememberSagaVault(bus: Bus, vault: SagaVault | undefined): Bus {
  if (vault !== undefined) vaults.set(bus, vault);
  return bus;
}

/** What seals the sagas of a bus, for those of our own rooms that read its tables. Undefined where it has no keys. */
export function findSagaVault(bus: Bus): SagaVault | undefined {
  return vaults.get(bus);
}
