//! Strongly connected components of a small graph.

/// The components of more than one node of a graph in which node `n` leads to `edges[n]`, each in
/// order (Tarjan's algorithm).
pub(crate) fn circles(edges: &[Vec<usize>]) -> Vec<Vec<usize>> {
    let mut search = Search {
        edges,
        index: vec![None; edges.len()],
        low: vec![0; edges.len()],
        on_stack: vec![false; edges.len()],
        stack: Vec::new(),
        next: 0,
        found: Vec::new(),
    };
    for node in 0..edges.len() {
        if search.index[node].is_none() {
            search.visit(node);
        }
    }
    search.found
}

struct Search<'a> {
    edges: &'a [Vec<usize>],
    index: Vec<Option<usize>>,
    low: Vec<usize>,
    on_stack: Vec<bool>,
    stack: Vec<usize>,
    next: usize,
    found: Vec<Vec<usize>>,
}

impl Search<'_> {
    fn visit(&mut self, node: usize) {
        self.index[node] = Some(self.next);
        self.low[node] = self.next;
        self.next += 1;
        self.stack.push(node);
        self.on_stack[node] = true;
        for &other in &self.edges[node] {
            match self.index[other] {
                None => {
                    self.visit(other);
                    self.low[node] = self.low[node].min(self.low[other]);
                }
                Some(index) if self.on_stack[other] => self.low[node] = self.low[node].min(index),
                Some(_) => {}
            }
        }
        if self.index[node] == Some(self.low[node]) {
            let mut component = Vec::new();
            while let Some(other) = self.stack.pop() {
                self.on_stack[other] = false;
                component.push(other);
                if other == node {
                    break;
                }
            }
            if component.len() > 1 {
                component.sort_unstable();
                self.found.push(component);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tree_has_no_circle() {
        assert_eq!(circles(&[vec![1, 2], vec![3], vec![3], vec![]]), Vec::<Vec<usize>>::new());
    }

    #[test]
    fn circles_are_found_whole_and_apart() {
        let edges = [vec![1], vec![2, 3], vec![0], vec![4], vec![3], vec![4]];
        let mut found = circles(&edges);
        found.sort();
        assert_eq!(found, [vec![0, 1, 2], vec![3, 4]]);
    }
}
