/**
 * What a running bus is made of. `relay` sends what was published, `consumers` handles what arrives and receives replies,
 * `sagas` moves sagas on, `upkeep` keeps partitions and forgets what is old, which only the owner of the tables may do.
 */
export const workerParts = ["relay", "consumers", "sagas", "upkeep"] as const;

export type WorkerPart = (typeof workerParts)[number];
