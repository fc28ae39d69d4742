// #region flow
import { flow } from "sagabox";
import * as e from "./events.ts";

export const orderFlow = flow("order")
  .begins(e.OrderPlaced)
  .on(e.OrderPlaced, { by: "stock", leadsTo: e.StockReserved })
  .on(e.StockReserved, { by: "payments", leadsTo: e.PaymentCaptured, orFailsWith: e.PaymentFailed })
  .on(e.PaymentCaptured, { by: "shipping", leadsTo: e.ShipmentScheduled, orFailsWith: e.ShipmentFailed })
  .on(e.PaymentFailed, { by: "stock", leadsTo: e.StockReleased, undoes: e.StockReserved })
  .on(e.ShipmentFailed, { by: "payments", leadsTo: e.PaymentRefunded, undoes: e.PaymentCaptured })
  .on(e.ShipmentFailed, { by: "stock", leadsTo: e.StockReleased, undoes: e.StockReserved })
  .ends(e.ShipmentScheduled, e.StockReleased, e.PaymentRefunded);
// #endregion flow
