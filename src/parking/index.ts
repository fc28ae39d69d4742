// Order per key through retries on brokers that cannot keep it. A keyed message that fails leaves the broker and waits
// in Postgres, and what follows of its key waits behind it; other keys flow, and the broker is never held up.
export { ParkingTransport } from "./parking-transport.ts";
