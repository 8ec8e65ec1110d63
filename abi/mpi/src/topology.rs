//! Virtual topologies.

use std::ffi::c_int;

use margay_core_group::{Cart, DistGraph, Edge, Graph, dims_create};
use margay_run_mpi::comm::Topology;
use margay_run_mpi::constants::comm::MPI_COMM_NULL;
use margay_run_mpi::constants::error_class::*;
use margay_run_mpi::constants::sentinel::*;
use margay_run_mpi::constants::topology::*;
use margay_run_mpi::constants::weights::*;
use margay_run_mpi::error::{Error, Result};
use margay_run_mpi::fail;

use crate::call::mpi;
use crate::convert::{length, wide};
use crate::types::*;
use crate::user::{In, Out, Place, Weights, WeightsOut};

mpi! {
    /// Arranges the processes in a grid.
    fn MPI_Cart_create(comm_old: MPI_Comm, ndims: c_int, dims: In<c_int>, periods: In<c_int>, reorder: c_int, comm_cart: Place<MPI_Comm>) |mpi| on comm_old {
        comm_cart.put("comm_cart", MPI_Comm::new(MPI_COMM_NULL))?;
        let _ = reorder;
        let (dims, periods) = grid(ndims, dims, periods)?;
        comm_cart.put("comm_cart", MPI_Comm::new(mpi.cart_create(comm_old.value(), &dims, &periods)?))
    }

    /// Chooses the dimensions of a grid.
    fn MPI_Dims_create(nnodes: c_int, ndims: c_int, dims: Out<c_int>) |_mpi| {
        let mut dims = dims;
        let places = dims.slice("dims", dimensions(ndims)?)?;
        let mut chosen: Vec<i64> = places.iter().map(|&d| i64::from(d)).collect();
        dims_create(i64::from(nnodes), &mut chosen)?;
        for (place, dim) in places.iter_mut().zip(chosen) {
            *place = dim as c_int;
        }
        Ok(())
    }

    /// Number of dimensions.
    fn MPI_Cartdim_get(comm: MPI_Comm, ndims: Place<c_int>) |mpi| on comm {
        ndims.put("ndims", mpi.comm(comm.value())?.cart()?.dims().len() as c_int)
    }

    /// The grid and this process's place in it.
    fn MPI_Cart_get(comm: MPI_Comm, maxdims: c_int, dims: Out<c_int>, periods: Out<c_int>, coords: Out<c_int>) |mpi| on comm {
        let object = mpi.comm(comm.value())?;
        let cart = object.cart()?;
        let n = cart.dims().len().min(length("maxdims", maxdims)?);
        dims.put("dims", cart.dims()[..n].iter().map(|&d| d as c_int))?;
        periods.put("periods", cart.periods()[..n].iter().map(|&p| c_int::from(p)))?;
        coords.put("coords", cart.coords(i64::from(object.rank))?[..n].iter().map(|&c| c as c_int))
    }

    /// The rank at coordinates.
    fn MPI_Cart_rank(comm: MPI_Comm, coords: In<c_int>, rank: Place<c_int>) |mpi| on comm {
        let object = mpi.comm(comm.value())?;
        let cart = object.cart()?;
        rank.put("rank", cart.rank(&wide("coords", coords, cart.dims().len())?)? as c_int)
    }

    /// The coordinates of a rank.
    fn MPI_Cart_coords(comm: MPI_Comm, rank: c_int, maxdims: c_int, coords: Out<c_int>) |mpi| on comm {
        let object = mpi.comm(comm.value())?;
        let cart = object.cart()?;
        let n = cart.dims().len().min(length("maxdims", maxdims)?);
        coords.put("coords", cart.coords(i64::from(rank))?[..n].iter().map(|&c| c as c_int))
    }

    /// Source and destination of a shift.
    fn MPI_Cart_shift(comm: MPI_Comm, direction: c_int, disp: c_int, rank_source: Place<c_int>, rank_dest: Place<c_int>) |mpi| on comm {
        let object = mpi.comm(comm.value())?;
        let (source, dest) = object.cart()?.shift(i64::from(object.rank), i64::from(direction), i64::from(disp))?;
        rank_source.put("rank_source", or_null(source))?;
        rank_dest.put("rank_dest", or_null(dest))
    }

    /// Splits a grid into grids of fewer dimensions.
    fn MPI_Cart_sub(comm: MPI_Comm, remain_dims: In<c_int>, newcomm: Place<MPI_Comm>) |mpi| on comm {
        let n = mpi.comm(comm.value())?.cart()?.dims().len();
        let remain: Vec<bool> = remain_dims.slice("remain_dims", n)?.iter().map(|&r| r != 0).collect();
        newcomm.put("newcomm", MPI_Comm::new(mpi.cart_sub(comm.value(), &remain)?))
    }

    /// The rank that this process would have in a grid.
    fn MPI_Cart_map(comm: MPI_Comm, ndims: c_int, dims: In<c_int>, periods: In<c_int>, newrank: Place<c_int>) |mpi| on comm {
        let object = mpi.comm(comm.value())?;
        let (dims, periods) = grid(ndims, dims, periods)?;
        let cart = Cart::new(&dims, &periods)?;
        if cart.size() > object.size() {
            fail!(MPI_ERR_DIMS, "the grid has {} processes, more than {}", cart.size(), object.describe());
        }
        newrank.put("newrank", cart.map(i64::from(object.rank)).map_or(MPI_UNDEFINED, |r| r as c_int))
    }

    /// Arranges the processes as a graph that all know.
    fn MPI_Graph_create(comm_old: MPI_Comm, nnodes: c_int, indx: In<c_int>, edges: In<c_int>, reorder: c_int, comm_graph: Place<MPI_Comm>) |mpi| on comm_old {
        comm_graph.put("comm_graph", MPI_Comm::new(MPI_COMM_NULL))?;
        let _ = reorder;
        let (index, edges) = graph(nnodes, indx, edges)?;
        comm_graph.put("comm_graph", MPI_Comm::new(mpi.graph_create(comm_old.value(), &index, &edges)?))
    }

    /// The sizes of a graph.
    fn MPI_Graphdims_get(comm: MPI_Comm, nnodes: Place<c_int>, nedges: Place<c_int>) |mpi| on comm {
        let object = mpi.comm(comm.value())?;
        let graph = object.graph()?;
        nnodes.put("nnodes", graph.nodes() as c_int)?;
        nedges.put("nedges", graph.edges().len() as c_int)
    }

    /// A graph.
    fn MPI_Graph_get(comm: MPI_Comm, maxindex: c_int, maxedges: c_int, indx: Out<c_int>, edges: Out<c_int>) |mpi| on comm {
        let object = mpi.comm(comm.value())?;
        let graph = object.graph()?;
        let nodes = graph.index().len().min(length("maxindex", maxindex)?);
        let links = graph.edges().len().min(length("maxedges", maxedges)?);
        indx.put("indx", graph.index()[..nodes].iter().map(|&i| i as c_int))?;
        edges.put("edges", graph.edges()[..links].iter().map(|&e| e as c_int))
    }

    /// Number of neighbours in a graph.
    fn MPI_Graph_neighbors_count(comm: MPI_Comm, rank: c_int, nneighbors: Place<c_int>) |mpi| on comm {
        let object = mpi.comm(comm.value())?;
        nneighbors.put("nneighbors", object.graph()?.neighbours(i64::from(rank))?.len() as c_int)
    }

    /// Neighbours in a graph.
    fn MPI_Graph_neighbors(comm: MPI_Comm, rank: c_int, maxneighbors: c_int, neighbors: Out<c_int>) |mpi| on comm {
        let object = mpi.comm(comm.value())?;
        let all = object.graph()?.neighbours(i64::from(rank))?;
        let n = all.len().min(length("maxneighbors", maxneighbors)?);
        neighbors.put("neighbors", all[..n].iter().map(|&r| r as c_int))
    }

    /// The rank that this process would have in a graph.
    fn MPI_Graph_map(comm: MPI_Comm, nnodes: c_int, indx: In<c_int>, edges: In<c_int>, newrank: Place<c_int>) |mpi| on comm {
        let object = mpi.comm(comm.value())?;
        let (index, edges) = graph(nnodes, indx, edges)?;
        let graph = Graph::new(&index, &edges)?;
        if graph.nodes() > object.size() {
            fail!(MPI_ERR_ARG, "the graph has {} nodes, more than {}", graph.nodes(), object.describe());
        }
        newrank.put("newrank", graph.map(i64::from(object.rank)).map_or(MPI_UNDEFINED, |r| r as c_int))
    }

    /// Arranges the processes as a graph of which each knows its own neighbours.
    fn MPI_Dist_graph_create_adjacent(comm_old: MPI_Comm, indegree: c_int, sources: In<c_int>, sourceweights: Weights, outdegree: c_int, destinations: In<c_int>, destweights: Weights, info: MPI_Info, reorder: c_int, comm_dist_graph: Place<MPI_Comm>) |mpi| on comm_old {
        let _ = reorder;
        mpi.check_info(info.value())?;
        let (incoming, outgoing) = (length("indegree", indegree)?, length("outdegree", outdegree)?);
        let weighted = is_weighted(sourceweights) && is_weighted(destweights);
        if weighted != (is_weighted(sourceweights) || is_weighted(destweights)) {
            fail!(MPI_ERR_ARG, "sourceweights and destweights must be both MPI_UNWEIGHTED or both not");
        }
        let mut part = DistGraph {
            sources: ranks("sources", sources, incoming)?,
            destinations: ranks("destinations", destinations, outgoing)?,
            weighted,
            ..DistGraph::default()
        };
        if weighted {
            part.source_weights = weights("sourceweights", sourceweights, incoming)?;
            part.destination_weights = weights("destweights", destweights, outgoing)?;
        }
        comm_dist_graph.put("comm_dist_graph", MPI_Comm::new(mpi.dist_graph_create_adjacent(comm_old.value(), part)?))
    }

    /// Arranges the processes as a graph of which each names some edges.
    fn MPI_Dist_graph_create(comm_old: MPI_Comm, n: c_int, sources: In<c_int>, degrees: In<c_int>, destinations: In<c_int>, weights: Weights, info: MPI_Info, reorder: c_int, comm_dist_graph: Place<MPI_Comm>) |mpi| on comm_old {
        let _ = reorder;
        mpi.check_info(info.value())?;
        let nodes = length("n", n)?;
        let size = mpi.intracomm(comm_old.value())?.size();
        let degrees = degrees.slice("degrees", nodes)?;
        for (i, &degree) in degrees.iter().enumerate() {
            length(&format!("degrees[{i}]"), degree)?;
        }
        let total = degrees.iter().map(|&d| d as usize).sum();
        let weighted = is_weighted(weights);
        let values = if weighted { self::weights("weights", weights, total)? } else { vec![0; total] };
        let to = ranks("destinations", destinations, total)?;
        let from = ranks("sources", sources, nodes)?;
        let mut edges = Vec::with_capacity(total);
        for (&source, &degree) in from.iter().zip(degrees) {
            for _ in 0..degree {
                let i = edges.len();
                edges.push(Edge { source, destination: to[i], weight: values[i] });
            }
        }
        if let Some(edge) = edges.iter().find(|e| e.source >= size || e.destination >= size) {
            fail!(MPI_ERR_RANK, "the edge from rank {} to rank {} is not within {size} ranks", edge.source as c_int, edge.destination as c_int);
        }
        comm_dist_graph.put("comm_dist_graph", MPI_Comm::new(mpi.dist_graph_create(comm_old.value(), &edges, weighted)?))
    }

    /// Numbers of neighbours.
    fn MPI_Dist_graph_neighbors_count(comm: MPI_Comm, indegree: Place<c_int>, outdegree: Place<c_int>, weighted: Place<c_int>) |mpi| on comm {
        let object = mpi.comm(comm.value())?;
        let graph = object.dist_graph()?;
        indegree.put("indegree", graph.sources.len() as c_int)?;
        outdegree.put("outdegree", graph.destinations.len() as c_int)?;
        weighted.put("weighted", c_int::from(graph.weighted))
    }

    /// Neighbours and their weights.
    fn MPI_Dist_graph_neighbors(comm: MPI_Comm, maxindegree: c_int, sources: Out<c_int>, sourceweights: WeightsOut, maxoutdegree: c_int, destinations: Out<c_int>, destweights: WeightsOut) |mpi| on comm {
        let object = mpi.comm(comm.value())?;
        let graph = object.dist_graph()?;
        let incoming = graph.sources.len().min(length("maxindegree", maxindegree)?);
        let outgoing = graph.destinations.len().min(length("maxoutdegree", maxoutdegree)?);
        sources.put("sources", graph.sources[..incoming].iter().map(|&r| r as c_int))?;
        destinations.put("destinations", graph.destinations[..outgoing].iter().map(|&r| r as c_int))?;
        if graph.weighted {
            let given = |array: Out<c_int>| !matches!(array.address(), MPI_UNWEIGHTED | MPI_WEIGHTS_EMPTY);
            if given(sourceweights) {
                sourceweights.put("sourceweights", graph.source_weights[..incoming].iter().map(|&w| w as c_int))?;
            }
            if given(destweights) {
                destweights.put("destweights", graph.destination_weights[..outgoing].iter().map(|&w| w as c_int))?;
            }
        }
        Ok(())
    }

    /// The kind of topology.
    fn MPI_Topo_test(comm: MPI_Comm, status: Place<c_int>) |mpi| on comm {
        status.put("status", match &mpi.comm(comm.value())?.topology {
            None => MPI_UNDEFINED,
            Some(Topology::Cart(_)) => MPI_CART,
            Some(Topology::Graph(_)) => MPI_GRAPH,
            Some(Topology::DistGraph(_)) => MPI_DIST_GRAPH,
        })
    }
}

fn dimensions(ndims: c_int) -> Result<usize> {
    length("ndims", ndims).map_err(|e| Error::new(MPI_ERR_DIMS, e.text()))
}

/// # Safety
/// The C caller vouches for `ndims` entries.
unsafe fn grid(ndims: c_int, dims: In<c_int>, periods: In<c_int>) -> Result<(Vec<i64>, Vec<bool>)> {
    let n = dimensions(ndims)?;
    // SAFETY: by the caller's promise.
    let (dims, periods) = unsafe { (wide("dims", dims, n)?, periods.slice("periods", n)?) };
    Ok((dims, periods.iter().map(|&p| p != 0).collect()))
}

/// # Safety
/// The C caller vouches for `nnodes` entries of `index`, and as many of `edges` as the last of them
/// says.
unsafe fn graph(nnodes: c_int, index: In<c_int>, edges: In<c_int>) -> Result<(Vec<i64>, Vec<i64>)> {
    // SAFETY: by the caller's promise.
    let index = unsafe { wide("indx", index, length("nnodes", nnodes)?) }?;
    let links = index.last().copied().unwrap_or(0).max(0) as usize;
    // SAFETY: as above.
    let edges = unsafe { wide("edges", edges, links) }?;
    Ok((index, edges))
}

fn is_weighted(weights: In<c_int>) -> bool {
    weights.address() != MPI_UNWEIGHTED
}

/// # Safety
/// The C caller vouches for `n` entries.
unsafe fn ranks(name: &str, array: In<c_int>, n: usize) -> Result<Vec<u32>> {
    // SAFETY: by the caller's promise.
    let ranks = unsafe { array.slice(name, n) }?;
    Ok(ranks.iter().map(|&r| r as u32).collect())
}

/// # Safety
/// The C caller vouches for `n` entries, unless it passes `MPI_WEIGHTS_EMPTY`.
unsafe fn weights(name: &str, array: In<c_int>, n: usize) -> Result<Vec<i64>> {
    if array.address() == MPI_WEIGHTS_EMPTY {
        if n > 0 {
            fail!(
                MPI_ERR_ARG,
                "{name} is MPI_WEIGHTS_EMPTY, but there are {n} edges"
            );
        }
        return Ok(Vec::new());
    }
    // SAFETY: by the caller's promise.
    let weights = unsafe { wide(name, array, n) }?;
    match weights.iter().position(|&w| w < 0) {
        Some(i) => fail!(
            MPI_ERR_ARG,
            "{name}[{i}] is {}; it must not be negative",
            weights[i]
        ),
        None => Ok(weights),
    }
}

fn or_null(rank: Option<u32>) -> c_int {
    rank.map_or(MPI_PROC_NULL, |r| r as c_int)
}
