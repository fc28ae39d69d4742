/**
 * The parts of a worker. `relay` sends published messages, `consumers` handles received messages and replies, `sagas`
 * advances sagas, `upkeep` manages partitions and deletes old rows, which requires the owner of the tables.
 */
export const workerParts = ["relay", "consumers", "sagas", "upkeep"] as const;

export type WorkerPart = (typeof workerParts)[number];
