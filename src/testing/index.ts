// For tests of what is built on sagabox: a broker inside the process with switches for what can go wrong.
export { MemoryTransport, type MemoryTransportOptions } from "./memory-transport.ts";
