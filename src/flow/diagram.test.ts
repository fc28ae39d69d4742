import { expect, test } from "vitest";
import { orderFlow, recordedPath } from "../../test/support/flows.ts";
import { flowDiagram, flowPathDiagram } from "./diagram.ts";
import { buildPath, type FlowPath } from "./flow-path.ts";

test("F11: the flow diagram marks failures and draws compensations dashed", () => {
  expect(flowDiagram(orderFlow)).toBe(
    `flowchart TD
  e1(["order.placed"])
  e2["stock.reserved"]
  e3["payment.captured"]
  e4["payment.failed"]
  e5(["shipment.scheduled"])
  e6["shipment.failed"]
  e7(["stock.released"])
  e8(["payment.refunded"])
  e1 -->|"stock"| e2
  e2 -->|"payments"| e3
  e2 -->|"payments fails"| e4
  e3 -->|"shipping"| e5
  e3 -->|"shipping fails"| e6
  e4 -.->|"stock undoes stock.reserved"| e7
  e6 -.->|"payments undoes payment.captured"| e8
  e6 -.->|"stock undoes stock.reserved"| e7
  classDef failure fill:#fde2e1,stroke:#b3261e,color:#410e0b
  class e4,e6 failure
  classDef undo fill:#fff4d6,stroke:#8a6100,color:#3d2b00,stroke-dasharray:4 3
  class e7,e8 undo`,
  );
});

test("F11: the path diagram shows publisher, time and receivers of every event", () => {
  const path = buildPath(
    orderFlow,
    recordedPath(
      { id: "1", type: "order.placed", source: "orders", at: 0 },
      { id: "2", type: "stock.reserved", source: "stock", after: "1", at: 10 },
      { id: "3", type: "payment.captured", source: "payments", after: "2", at: 1_530 },
      { id: "4", type: "shipment.failed", source: "shipping", after: "3", at: 90_000 },
      { id: "5", type: "payment.refunded", source: "payments", after: "4", at: 7_200_000 },
    ),
  );
  expect(flowPathDiagram(path as FlowPath)).toBe(`sequenceDiagram
  title order A-1: compensating
  participant s1 as orders
  participant s2 as stock
  participant s3 as payments
  participant s4 as shipping
  s1->>s2: order.placed +0 ms
  s2->>s3: stock.reserved +10 ms
  s3->>s4: payment.captured +1.5 s
  s4-xs3: shipment.failed +1.5 min
  s4-xs2: shipment.failed +1.5 min
  Note over s3: undone by payment.refunded +2.0 h
  Note over s2: waits for stock.released`);
});

test("names are escaped in diagrams", () => {
  const evil = 'x"]; click e1 "javascript:alert(1)"\n%%{init}%%';
  const path = buildPath(orderFlow, recordedPath({ id: "1", type: "order.placed", source: evil, at: 0 }));
  const lines = flowPathDiagram(path as FlowPath).split("\n");
  expect(lines).toHaveLength(6);
  expect(lines.join("")).not.toMatch(/[";%{}#]/);
});
