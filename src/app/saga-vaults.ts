import type { SagaVault } from "../saga/index.ts";
import type { Bus } from "./bus.ts";

const vaults = new WeakMap<Bus, SagaVault>();

export function rememberSagaVault(bus: Bus, vault: SagaVault | undefined): Bus {
  if (vault !== undefined) vaults.set(bus, vault);
  return bus;
}

/** Returns the cipher for saga data of a bus, for other rooms that read its tables; undefined without a key ring. */
export function findSagaVault(bus: Bus): SagaVault | undefined {
  return vaults.get(bus);
}
