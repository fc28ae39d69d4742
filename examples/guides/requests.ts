import { isSagaboxError, RequestError, type Bus } from "sagabox";
import { ReserveStock } from "./contracts.ts";

// #region ask
export async function reserve(bus: Bus, orderId: string, sku: string): Promise<string> {
  const { reservationId } = await bus.request(ReserveStock, { orderId, sku }, { timeout: "5s" });
  return reservationId;
}
// #endregion ask

// #region outcomes
export async function tryToReserve(bus: Bus, orderId: string, sku: string): Promise<string> {
  try {
    return await reserve(bus, orderId, sku);
  } catch (error) {
    if (isSagaboxError(error, "REQUEST_TIMEOUT")) return "unknown"; // it may still happen
    if (error instanceof RequestError) return `failed: ${error.reason ?? ""}`; // it will not happen by itself
    throw error;
  }
}
// #endregion outcomes

// #region again
export async function reserveOnce(bus: Bus, orderId: string, sku: string): Promise<string> {
  const id = `reserve:${orderId}`; // the same id twice is one command, and both get its reply
  const { reservationId } = await bus.request(ReserveStock, { orderId, sku }, { timeout: "5s", id });
  return reservationId;
}
// #endregion again
